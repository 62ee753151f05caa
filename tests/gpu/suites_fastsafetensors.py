# SPDX-License-Identifier: MIT
"""conftest.py for the tests of fastsafetensors: its sdist has the tests without theirs, which would
download a model. The tensors have the names that the tests ask for. Also missing is their module
platform_utils, of which they use one function, for another vendor's GPUs."""

import os
import sys
import types

import pytest
import torch
from fastsafetensors import SingleGroup
from fastsafetensors import cpp as fstcpp
from fastsafetensors.frameworks import get_framework_op
from safetensors.torch import save_file

sys.modules["platform_utils"] = types.SimpleNamespace(
    skip_if_rocm_expected_failure=lambda name: None)


@pytest.fixture(scope="session", name="fstcpp_log")
def fixture_log():
    fstcpp.set_debug_log(False)


@pytest.fixture(scope="session", name="framework")
def fixture_framework():
    return get_framework_op("pytorch")


@pytest.fixture(scope="session", name="pg")
def fixture_group():
    return SingleGroup()


@pytest.fixture(scope="session", name="tmp_dir")
def fixture_tmp_dir(tmp_path_factory):
    return str(tmp_path_factory.mktemp("fastsafetensors"))


@pytest.fixture(scope="session", name="input_files")
def fixture_input_files(tmp_dir):
    tensors = {"wte.weight": torch.randn(1009, 256), "wpe.weight": torch.randn(64, 256)}
    for i in range(12):
        tensors[f"h.{i}.mlp.c_proj.weight"] = torch.randn(1024, 256)
        tensors[f"h.{i}.mlp.c_fc.weight"] = torch.randn(256, 1024)
        tensors[f"h.{i}.attn.c_proj.weight"] = torch.randn(256, 256)
    path = os.path.join(tmp_dir, "model.safetensors")
    save_file(tensors, path)
    return [path]
