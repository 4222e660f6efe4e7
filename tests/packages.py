"""Packages that tests need: looked for without importing them, which takes seconds and which every process would do."""

import importlib.util

import pytest


def skip_module_without(package):
    """Skip all tests of a module where a package is not installed."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install {package}", allow_module_level=True)


def skip_without(package):
    """Skip a test that runs a package in another process."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install {package}")
