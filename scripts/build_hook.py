"""What hatchling runs when it builds or installs the package: the engine is compiled into the wheel, or in place.

A wheel has copies of the files that the pages of `regard learn` show or link to; an installation in place reads them where
they are.

Without a C compiler the package is built without the engine, and PyTorch does the work. REGARD_WHEEL_TAG names the platform
of a wheel that a cross compiler (CC) builds; without it the tag is this machine's.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/regard/engine")
PAGES = (
    *("README.md", "README.zh.md", "CHANGELOG.md", "CONTRIBUTING.md", "LOG.md", "SECURITY.md"),
    *("docs", "examples", "benchmarks/README.md", "benchmarks/results", "requirements/core.txt"),
)
STUDIES = ("*.toml", "*/study.json", "*/table.*", "*/figure.*")  # without the outputs of cells, which are large


class Hook(BuildHookInterface[Any]):
    """Compiles the engine, and copies the text of the pages."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        if version == "standard":
            root = Path(self.root)
            found = [path for pattern in STUDIES for path in (root / "studies").glob(pattern)]
            for path in [*(root / one for one in PAGES), *found]:
                copy = f"regard/learn/repository/{path.relative_to(root).as_posix()}"
                build_data["force_include"][str(path)] = copy
        folder = Path(self.root) / FOLDER
        spec = importlib.util.spec_from_file_location("engine_build", folder / "build.py")
        assert spec is not None and spec.loader is not None
        compiling = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(compiling)
        tag = os.environ.get("REGARD_WHEEL_TAG")
        # A library for another platform must not replace the one in the checkout.
        library = (
            folder / compiling.library_name() if tag is None else Path(self.directory) / tag / compiling.library_name()
        )
        library.parent.mkdir(parents=True, exist_ok=True)
        try:
            compiling.build(folder, output=library)
        except compiling.BuildError as error:
            print(f"The engine is not compiled, so PyTorch will do its work: {error}", file=sys.stderr)
            return
        build_data["force_include"][str(library)] = f"regard/engine/{library.name}"
        build_data["pure_python"] = False
        # The library is read with ctypes, so it serves every version of Python.
        build_data["tag"] = f"py3-none-{tag or _platform()}"


def _platform() -> str:
    """Return the platform tag of this machine, as pip names it."""
    import sysconfig

    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
