"""Without a GPU, the tests of the kernels run in Triton's interpreter, in a separate process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard import kernels


@pytest.mark.slow
@pytest.mark.skipif(not kernels.installed(), reason="Triton is not installed")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels' own tests run on the GPU")
def test_the_kernels_pass_their_tests_in_the_interpreter():
    tests = Path(__file__).with_name("test_kernels.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:xdist", "-p", "no:cacheprovider", str(tests)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "passed" in done.stdout and "skipped" not in done.stdout
