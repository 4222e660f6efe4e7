"""Other processors than this one compute the same bits: Arm in an emulator, WebAssembly in Node."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from regard.engine import build
from regard.engine.bindings import library

ENGINE = Path(build.__file__).parent
SOURCE = Path(__file__).with_name("kernel_sums.c")
NODE = """
import { WASI } from 'wasi';
import fs from 'fs';
const wasi = new WASI({ version: 'preview1', args: [], env: {} });
const module = await WebAssembly.compile(fs.readFileSync(process.argv[2]));
wasi.start(await WebAssembly.instantiate(module, { wasi_snapshot_preview1: wasi.wasiImport }));
"""


def hashes(
    work: Path, compiler: str, run: Sequence[str], link: Sequence[str] = ("-static",)
) -> dict[str, dict[str, str]]:
    """Return the hash of each case's result, by set. The kernels are compiled for another processor."""
    command = [*build.find_compiler(compiler), f"-I{ENGINE}"]
    sources = [*(ENGINE / name for name in (*build.PER_SET, "processor.c", "positions.c")), SOURCE]
    steps = build.compile_commands(command, sources, work)
    compile_program([*steps, [*command, *link, "-o", str(work / "sums"), *(step[-1] for step in steps), "-lm"]])
    return printed_hashes([*run, str(work / "sums")])


def compile_program(steps: Sequence[Sequence[str]]) -> None:
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def printed_hashes(command: Sequence[str]) -> dict[str, dict[str, str]]:
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, dict[str, str]] = {}
    for line in printed.splitlines():
        *case, name, value = line.split()
        found.setdefault(" ".join(case), {})[name] = value
    return found


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What the library computes that users have, since compiling its kernels again takes a quarter of a minute."""
    if not shutil.which("cc") or library() is None:
        pytest.skip("no C compiler, or the engine has not been compiled: make engine")
    program, place = tmp_path_factory.mktemp("here") / "sums", ENGINE / build.library_name()
    command = [*build.find_compiler("cc"), "-std=c11", "-ffp-contract=off", f"-I{ENGINE}", "-o", str(program)]
    compile_program([[*command, str(SOURCE), str(place), f"-Wl,-rpath,{ENGINE}", "-lm"]])
    return printed_hashes([str(program)])


def check(ours: dict[str, dict[str, str]], others: dict[str, dict[str, str]]) -> None:
    assert ours.keys() == others.keys()
    for case in ours:
        assert len({*ours[case].values(), *others[case].values()}) == 1, (case, ours[case], others[case])


@pytest.mark.slow
def test_all_sets_of_this_processor_agree(here: dict[str, dict[str, str]]) -> None:
    check(here, here)


@pytest.mark.slow
@pytest.mark.parametrize("processor", ["max", "cortex-a72"])
def test_arm_agrees(here: dict[str, dict[str, str]], processor: str, tmp_path: Path) -> None:
    if not shutil.which("aarch64-linux-gnu-gcc") or not shutil.which("qemu-aarch64"):
        pytest.skip("needs gcc-aarch64-linux-gnu and qemu-user")
    found = hashes(tmp_path, "aarch64-linux-gnu-gcc", ["qemu-aarch64", "-cpu", processor])
    assert ("neon_dotprod" in next(iter(found.values()))) == (processor == "max")
    check(here, found)


@pytest.mark.slow
def test_webassembly_agrees(here: dict[str, dict[str, str]], tmp_path: Path) -> None:
    if not all(map(shutil.which, ("clang", "wasm-ld", "node"))) or not Path("/usr/lib/wasm32-wasi").exists():
        pytest.skip("needs clang, lld, wasi-libc and node")
    script = tmp_path / "run.mjs"
    script.write_text(NODE)
    node = ["node", "--no-warnings", "--experimental-wasi-unstable-preview1", str(script)]
    check(here, hashes(tmp_path, "clang --target=wasm32-wasi", node, link=()))
