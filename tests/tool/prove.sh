#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane prove where nothing can be proved: what is missing is said, and nothing is left behind. The
# rest of it runs in the VM lab (tests/vm/guest/prove.c).
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

if [ -e /dev/peerlane ]; then
	echo "the kernel module is loaded here"
	exit 77
fi
export PEERLANE_LIBCUDA=/nowhere

# No module: status 2, a sentence, and a report all the same.
expect 2 "$tool" prove --size 16M scratch
says out 'Checks this machine, then reads and writes a scratch file of 16 MiB'
says out 'FAIL module: /dev/peerlane: not there: the kernel module is not loaded; fix: modprobe'
says out 'FAIL nvidia_driver: '
says out 'FAIL gpu: '
says out 'Not run: a precondition is missing.'
grep -qE '^[0-9]+ passed, [1-9][0-9]* failed, [0-9]+ notes$' out || fail "no count: $(cat out)"
! grep -q '^SIMULATED' out || fail 'a simulated GPU that nobody asked for'
says err 'The report is in peerlane-prove-'
report=$(find . -name 'peerlane-prove-*.txt')
[ -f "$report" ] || fail "no report: $report"
same out "$report"
[ "$(id -u)" -eq 0 ] || says out 'FAIL root: '

# It names neither this machine nor the place.
host=$(uname -n)
[ "${#host}" -lt 3 ] || ! grep -qiw -- "$host" "$report" || fail "the host's name: $(cat "$report")"
! grep -qF "$dir" "$report" || fail 'a path'
rm "$report"
only

# A test GPU is said in capital letters.
expect 2 "$tool" prove --backend simgpu --size 16M --report r scratch
says r 'SIMULATED GPU: THIS REPORT SAYS NOTHING ABOUT HARDWARE'
only r

# A report is never overwritten.
cp r was
expect 2 "$tool" prove --size 16M --report r scratch
says err 'r: exists already; name another with --report'
same r was
rm r was

# A file that is there stays as it is, also with --reuse unless prove made it.
head -c 5000 /dev/urandom >mine
cp mine copy
expect 2 "$tool" prove mine
says err 'mine exists already, and is left as it is'
expect 2 "$tool" prove --reuse mine
says err 'mine was not made by prove'
same mine copy
: >empty
expect 2 "$tool" prove --reuse empty
says err 'was not made by prove'
ln -s mine link
expect 2 "$tool" prove --reuse link
says err 'was not made by prove'
mkdir folder
expect 2 "$tool" prove folder
expect 2 "$tool" prove --reuse folder
expect 2 "$tool" prove nowhere/scratch
says err 'nowhere/scratch: No such file'
same mine copy
only copy empty folder link mine

# JSON has the same checks.
expect 2 "$tool" prove --json --size 16M --report r scratch
json 'd["failed"] >= 3 and d["simulated"] is False and d["measurements"] == []'
json '[c["fix"] for c in d["checks"] if c["name"] == "module" and c["result"] == "FAIL"]'
json 'sum(d[k] for k in ("passed", "failed", "notes")) == len(d["checks"])'
finish
