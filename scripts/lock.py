"""Write requirements/*.txt, every package with its version and hashes, from pyproject.toml and constraints.txt.

    .venv/bin/python scripts/lock.py

constraints.txt is what a person edits: it pins every package that may be needed. This follows the dependencies of the
pinned versions for each platform below and adds the hashes of all files that pip's configured index has of them. Markers say
which platforms need a package. Builds of PyTorch for CPUs in pip's local folders (find-links) get a file of their own: pip
prefers the index's files where both fit, and those need gigabytes of CUDA libraries.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from package_index import File, files_of, index_url, local_wheels, requirements_of
from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.specifiers import SpecifierSet
from pip._vendor.packaging.utils import (
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from pip._vendor.packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
PLATFORMS = [("linux", "Linux", "x86_64"), ("linux", "Linux", "aarch64"), ("darwin", "Darwin", "arm64")]
PYTHONS = ("3.11", "3.12", "3.13")
FILES = {
    "core": "what `regard`, its server, its pictures and its build need, without PyTorch",
    "torch": "PyTorch as the index has it: on Linux with CUDA",
    "cuda": "the libraries that PyTorch's CUDA builds need on Linux; a CPU build needs none of them",
    "dev": "what the tests and checks need besides core",
    "deploy": "what `regard translate` and `regard serve` need where the engine computes: neither PyTorch nor the build",
}
IN_CORE = ("serve", "plots")  # extras that the README uses after `make demo`
CUDA = ("cuda-", "nvidia-", "triton")

NOT_DEPLOYED = {"torch", "safetensors", "sacrebleu"}
Environment = tuple[str, str, str, str]  # sys_platform, platform_system, platform_machine, python_version
ENVIRONMENTS: list[Environment] = [(*platform, python) for platform in PLATFORMS for python in PYTHONS]


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    core = [*project["project"]["dependencies"], *(one for name in IN_CORE for one in extras[name])]
    core += [*project["build-system"]["requires"], "editables"]
    deploy = [one for one in project["project"]["dependencies"] if Requirement(one).name not in NOT_DEPLOYED]
    needed = {"core": close(core), "dev": close([*core, *extras["dev"]]), "deploy": close([*deploy, *extras["serve"]])}
    names = {"torch": {"torch"}, "cuda": {name for name in needed["core"] if name.startswith(CUDA)}}
    names["core"] = needed["core"].keys() - names["torch"] - names["cuda"]
    # A CPU build of PyTorch needs none of the CUDA libraries, but tests run the kernels in Triton's interpreter.
    direct = {canonicalize_name(one.name): one for one in map(Requirement, extras["dev"])}
    own = {
        name: {one for one in ENVIRONMENTS if applies(direct[name], "", one)} for name in direct.keys() & names["cuda"]
    }
    names["dev"] = (needed["dev"].keys() - needed["core"].keys()) | own.keys()
    names["deploy"] = needed["deploy"].keys()
    (ROOT / "requirements").mkdir(exist_ok=True)
    for lock, about in FILES.items():
        where = {**needed["dev"], **own} if lock == "dev" else needed["dev"]
        with ThreadPoolExecutor(8) as pool:
            entries = list(pool.map(lambda name, where=where: entry(name, where[name]), sorted(names[lock])))
        write(lock, about, f"For Linux (x86_64, aarch64) and macOS (arm64), Python {', '.join(PYTHONS)}", entries)
    builds = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in local_wheels() if is_pinned(path, "torch")
    }
    if builds:
        lock_builds({**locked_builds(), **builds})
    else:
        print("requirements/torch-cpu.txt is left as it is: pip's find-links have no build of PyTorch")


def write(lock: str, about: str, where: str, entries: list[str]) -> None:
    head = f"# Made by scripts/lock.py from constraints.txt; do not edit.\n# {lock}: {about}.\n# {where}.\n"
    (ROOT / "requirements" / f"{lock}.txt").write_text(head + "".join(entries), encoding="utf-8")
    print(f"requirements/{lock}.txt: {len(entries)} packages")


def lock_builds(builds: dict[str, str]) -> None:
    """Write the hashes of these wheels of PyTorch; builds of an older version are dropped."""
    version = max(parse_wheel_filename(name)[1] for name in builds)
    current = {name: digest for name, digest in sorted(builds.items()) if parse_wheel_filename(name)[1] == version}
    hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in current.values())
    write("torch-cpu", "builds for CPUs, without CUDA", f"For {', '.join(current)}", [f"torch=={version}{hashes}\n"])


def locked_builds() -> dict[str, str]:
    """The wheels that torch-cpu.txt has already, with their hashes: each machine's pip has only the build that fits it."""
    text = (ROOT / "requirements" / "torch-cpu.txt").read_text(encoding="utf-8")
    names = re.findall(r"torch-\S+?\.whl", text)
    return dict(zip(names, re.findall(r"--hash=sha256:(\w+)", text), strict=True))


def close(requirements: Iterable[str]) -> dict[str, set[Environment]]:
    """Every package that these need, with the environments in which it is needed."""
    needed: dict[str, set[Environment]] = {}
    seen: set[tuple[str, str, Environment]] = set()  # a package, one of its extras or "", an environment
    waiting = [(Requirement(one), "", environment) for one in requirements for environment in ENVIRONMENTS]
    while waiting:
        batch = [one for one in waiting if applies(*one)]
        names: dict[str, SpecifierSet] = {}
        for requirement, _, _ in batch:
            name = canonicalize_name(requirement.name)
            names[name] = names.get(name, SpecifierSet()) & requirement.specifier
        missing = sorted(suggestion(name, fits) for name, fits in names.items() if name not in pins())
        if missing:
            sys.exit("constraints.txt lacks (these are the newest that fit):\n" + "\n".join(missing))
        with ThreadPoolExecutor(16) as pool:  # only to have the answers at hand
            list(pool.map(dependencies, names))
        waiting = []
        for requirement, _, environment in batch:
            name = canonicalize_name(requirement.name)
            if not requirement.specifier.contains(pins()[name], prereleases=True):
                sys.exit(f"constraints.txt has {name}=={pins()[name]}, but {requirement} is needed")
            needed.setdefault(name, set()).add(environment)
            for wanted in ("", *requirement.extras):
                if (name, wanted, environment) not in seen:
                    seen.add((name, wanted, environment))
                    waiting += [(Requirement(one), wanted, environment) for one in dependencies(name)]
    return needed


def applies(requirement: Requirement, extra: str, environment: Environment) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(as_markers(environment, extra))


def suggestion(name: str, fits: SpecifierSet) -> str:
    """A line for constraints.txt."""
    versions = {version for one in files_of(index_of_pip(), name) if (version := version_of(one.name))}
    return f"{name}=={max(fits.filter(versions), default='?')}"


def as_markers(environment: Environment, extra: str) -> dict[str, str]:
    platform, system, machine, python = environment
    return {
        **{"sys_platform": platform, "platform_system": system, "platform_machine": machine, "extra": extra},
        **{"python_version": python, "python_full_version": f"{python}.9", "os_name": "posix"},
        **{"implementation_name": "cpython", "platform_python_implementation": "CPython"},
    }


@cache
def pins() -> dict[str, str]:
    """The versions in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


@cache
def release(name: str) -> tuple[File, ...]:
    """The files of the pinned version."""
    files = tuple(
        one for one in files_of(index_of_pip(), name) if version_of(one.name) == Version(pins()[name]) and one.sha256
    )
    return files or sys.exit(f"the index has no files of {name}=={pins()[name]}")


@cache
def index_of_pip() -> str:
    return index_url()


@cache
def dependencies(name: str) -> tuple[str, ...]:
    """What the pinned version says it needs; wheels of one version say the same, so one is read."""
    wheels = [one for one in release(name) if one.name.endswith(".whl")]
    if not wheels:
        sys.exit(f"the index has no wheel of {name}=={pins()[name]}")
    preferred = [one for one in wheels if "cp311" in one.name and "x86_64" in one.name and "manylinux" in one.name]
    return tuple(requirements_of((preferred or wheels)[0]))


def version_of(file: str) -> Version | None:
    try:
        return parse_wheel_filename(file)[1] if file.endswith(".whl") else parse_sdist_filename(file)[1]
    except (InvalidWheelFilename, InvalidVersion, ValueError):
        return None


def entry(name: str, environments: set[Environment]) -> str:
    """The lines of one package."""
    hashes = [f" \\\n    --hash=sha256:{digest}" for digest in sorted({one.sha256 for one in release(name)})]
    return f"{name}=={pins()[name]}{marker_of(environments)}{''.join(hashes)}\n"


def is_pinned(path: Path, name: str) -> bool:
    found, version, *_ = parse_wheel_filename(path.name)
    return found == name and version.public == pins()[name]


def marker_of(environments: set[Environment]) -> str:
    """Where a package is needed, as short as can be."""
    if environments == set(ENVIRONMENTS):
        return ""
    platforms = {one[0] for one in environments}
    if environments == {one for one in ENVIRONMENTS if one[0] in platforms}:
        return " ; " + " or ".join(f'sys_platform == "{one}"' for one in sorted(platforms))
    pairs = {(one[0], one[2]) for one in environments}
    if environments == {one for one in ENVIRONMENTS if (one[0], one[2]) in pairs}:
        parts = [f'(sys_platform == "{one}" and platform_machine == "{machine}")' for one, machine in sorted(pairs)]
        return " ; " + " or ".join(parts)
    pythons = {one[3] for one in environments}
    if environments == {one for one in ENVIRONMENTS if one[3] in pythons}:
        return " ; " + " or ".join(f'python_version == "{one}"' for one in sorted(pythons))
    parts = [
        f'(sys_platform == "{one}" and platform_machine == "{machine}" and python_version == "{python}")'
        for one, _, machine, python in sorted(environments)
    ]
    return " ; " + " or ".join(parts)


if __name__ == "__main__":
    main()
