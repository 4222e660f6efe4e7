"""What all tests share. Tests run side by side, so each keeps to one CPU thread."""

import functools
import gc
import os
from pathlib import Path

import pytest
import torch
import typer.testing
from hypothesis import settings

from tests.browser import chromium

torch.set_num_threads(1)
gc.disable()  # until tests are collected: thousands of them are made, and all are kept
# Made of all commands, which takes a fifth of a second, each time that CliRunner calls one.
typer.testing._get_command = functools.cache(typer.testing._get_command)
settings.register_profile("unhurried", deadline=None)  # a busy machine is not a wrong answer
settings.load_profile("unhurried")


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="leave out slow tests (make test)")
    parser.addoption("--slow", action="store_true", help="only slow tests (make test-slow)")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    if config.getoption("quick") != config.getoption("slow"):
        left_out = [item for item in items if is_slow(item) == config.getoption("quick")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if is_slow(item) != config.getoption("quick")]


def pytest_collection_finish():
    gc.freeze()  # modules and tests are not looked through again
    gc.enable()


def is_slow(item):
    """Whether `make test` leaves a test out. Those in a browser are slow, except for those marked as quick."""
    if "browser" in item.fixturenames:
        return item.get_closest_marker("quick") is None
    marker = item.get_closest_marker("slow")
    return marker is not None and not ("unless" in marker.kwargs and item.callspec.id in marker.kwargs["unless"])


@pytest.fixture
def generator():
    """Randomness of a test's own."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="module")
def browser():
    """A browser for the tests of a file. It would stop later ones from running an event loop of their own."""
    with chromium() as found:
        yield found


@pytest.fixture
def threads():
    """Sets how many CPU threads there are, for this test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def data_folder():
    """The folder of real data sets, where there is one."""
    folder = os.environ.get("REGARD_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set REGARD_DATA to a folder with the real data sets to run this test")
    return Path(folder)
