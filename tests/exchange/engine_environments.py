"""Virtual environments with some distributions and what they require: without regard, or with a wheel of it.

Nothing is downloaded. The distributions of the current environment are linked into the new one, so that it takes a second.
"""

import importlib.metadata
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def make_environment(folder, *distributions):
    """Make a virtual environment with these distributions, and return its Python. Skip the test if one is missing here."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(python, "-c", code).stdout.strip())
    assert packages.is_relative_to(folder) and not list(packages.iterdir())
    for distribution in _with_requirements(distributions):
        _link(distribution, packages)
    return python


def install_wheel(python, folder):
    """Build a wheel of the package in a folder, add it to an environment, and return the names of its files."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True)
    assert built.returncode == 0, built.stderr
    [wheel] = folder.glob("*.whl")
    assert "-py3-none-linux_" in wheel.name or sys.platform != "linux"
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
        return archive.namelist()


def run(python, *arguments, **options):
    """Run a Python without the variables and the user's folder that would change what it can import."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"HF_HUB_OFFLINE": "1", "PYTHONNOUSERSITE": "1", "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [str(python), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        **options,
    )


def _with_requirements(names):
    """Return the distributions of these names and all that they require here, without extras."""
    found, waiting = {}, list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in map(canonicalize_name, names):
                pytest.skip(f"{name} is not installed here")
            raise
        for requirement in map(Requirement, found[name].requires or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    assert "regard" not in found, sorted(found)
    return list(found.values())


def _link(distribution, packages):
    """Link what a distribution has on the path: packages, modules and metadata. Scripts are left out."""
    for top in sorted({file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}):
        place = packages / top
        if not place.exists():
            place.symlink_to(Path(distribution.locate_file(top)).resolve())
