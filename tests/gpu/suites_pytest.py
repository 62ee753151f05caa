# SPDX-License-Identifier: MIT
"""A plug-in for pytest that notes each test when it begins and when it ended, in the file
$SUITES_RESULTS: a crash of the process then costs one test. At the end it notes which libcufile the
process had loaded."""

import os
import re


def note(*words):
    with open(os.environ["SUITES_RESULTS"], "a", encoding="utf-8") as f:
        f.write("\t".join(words) + "\n")


def pytest_runtest_logstart(nodeid, location):
    del location
    note("begin", nodeid)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        note("failed" if report.failed else report.outcome, report.nodeid)


def pytest_collectreport(report):
    """A file that cannot be loaded is a test that fails."""
    if report.failed:
        note("failed", f"{report.nodeid} (loading it)")


def pytest_sessionfinish():
    with open("/proc/self/maps", encoding="utf-8") as f:
        for path in sorted(set(re.findall(r"/\S*libcufile\.so\S*", f.read()))):
            note("library", os.path.realpath(path))
