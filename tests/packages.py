"""Packages that tests need: looked for without importing them, because every test process collects every test."""

import importlib.util

import pytest


def skip_module_without(package):
    """Skip all tests of a module where a package is not installed."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install {package}", allow_module_level=True)
