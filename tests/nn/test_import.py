"""Importing the library changes nothing in the process."""

import json
import subprocess
import sys

import pytest

STATE = """
import os, random, signal, sys, warnings
import numpy, torch

def state():
    cuda = torch.backends.cuda
    return {
        "environment": dict(os.environ),
        "cuDNN attention": cuda.cudnn_sdp_enabled(),
        "other attention": (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()),
        "oneDNN": torch.backends.mkldnn.enabled,
        "cuDNN": (torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic),
        "precision of products": (torch.get_float32_matmul_precision(), cuda.matmul.allow_tf32),
        "default type and device": (torch.get_default_dtype(), torch.get_default_device()),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "random numbers": (torch.get_rng_state().tolist(), random.getstate(), str(numpy.random.get_state())),
        "signals": [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)],
        "warnings": list(warnings.filters),
        "recursion": sys.getrecursionlimit(),
    }

"""


def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


MODULES = ["regard", "regard.nn", "regard.models", "regard.training.trainer", "regard.api"]


@pytest.fixture(scope="module")
def changed():
    """What each module changes when it is imported after the ones before it."""
    program = (
        f"{STATE}import importlib, json\nchanged = {{}}\nfor module in {MODULES!r}:\n"
        + """
    before = state()
    importlib.import_module(module)
    changed[module] = [name for name, value in state().items() if value != before[name]]
print(json.dumps(changed))
"""
    )
    return json.loads(run(program))


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_importing_leaves_the_process_as_it_was(changed, module):
    assert changed[module] == []


def test_importing_the_package_sets_no_variable_and_imports_no_torch():
    program = (
        "import os, sys; before = dict(os.environ); import regard; print(os.environ == before, 'torch' in sys.modules)"
    )
    assert run(program) == "True False"


def test_a_command_sets_the_delay_of_the_allocator_before_torch_is_imported():
    program = (
        "import os, sys; from regard import cli\n"
        "cli._run = lambda words: print(os.environ['MIMALLOC_PURGE_DELAY'], 'torch' in sys.modules, flush=True) or 0\n"
        "cli.main()"
    )
    assert run(program) == "1000 False"
