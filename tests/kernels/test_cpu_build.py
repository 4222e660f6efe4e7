"""How the CPU kernels are compiled, cached and checked before they are loaded, and what happens without a compiler."""

import os
import shlex
import shutil
import stat
import time

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.kernels.cpu import build as building
from regard.kernels.cpu.build import Built, build

COMPILER = shutil.which("cc")
pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C compiler"),
    pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owner here"),
]


class Compiler:
    """A script that counts its calls and, by default, copies a library compiled before."""

    def __init__(self, folder, library):
        self.log, self.path = folder / "calls", folder / "mycc"
        self.log.touch()
        self.works = f"cp {shlex.quote(str(library))} $(echo \"$@\" | grep -o '[^ ]*\\.so')"
        self.answer(self.works)

    def answer(self, command):
        """Set what the script does after counting. Its modification time, and so the library's name, stays the same."""
        self.path.write_text(f"#!/bin/sh\necho call >> {shlex.quote(str(self.log))}\n{command}\n")
        self.path.chmod(0o755)
        os.utime(self.path, (1, 1))

    @property
    def calls(self):
        return len(self.log.read_text().splitlines())


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A library made by the real compiler."""
    folder = tmp_path_factory.mktemp("compiled")
    assert build(folder).library is not None
    [library] = folder.glob("*.so")
    return library


@pytest.fixture
def compiler(tmp_path, compiled, monkeypatch):
    one = Compiler(tmp_path, compiled)
    monkeypatch.setenv("CC", str(one.path))
    return one


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "regard"


@pytest.fixture
def made(compiler, folder):
    """The library of the first build."""
    assert build(folder).library is not None
    assert compiler.calls == 1
    [library] = folder.glob("*.so")
    return library


@pytest.fixture
def unloadable(monkeypatch):
    """As if the folder were mounted noexec."""

    def refuse(path):
        raise OSError(f"{path}: failed to map segment from shared object")

    monkeypatch.setattr(building.ctypes, "CDLL", refuse)


def test_kernels_are_compiled_once_into_a_private_folder(compiler, folder, made):
    assert {path.suffix for path in folder.iterdir()} == {".so", ".sha256"}
    for _ in range(3):
        assert build(folder).library is not None
    assert compiler.calls == 1
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_without_a_compiler_there_are_no_kernels(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "")
    assert build(tmp_path) == Built(None, "no C compiler was found")


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_library_is_compiled_again(compiler, folder, made, kept):
    original = made.read_bytes()
    replace(made, original[: int(len(original) * kept)])
    assert build(folder).library is not None
    assert compiler.calls == 2 and made.stat().st_size == len(original)


def replace(path, content):
    """Replace the file by a new one. Truncating it would end this process, which has it mapped, with a bus error."""
    new = path.parent.parent / "new"
    new.write_bytes(content)
    new.chmod(0o600)
    new.replace(path)


def test_a_library_with_a_flipped_bit_is_never_loaded(compiler, folder, made, monkeypatch):
    loads = []
    original, load = made.read_bytes(), building.ctypes.CDLL
    monkeypatch.setattr(building.ctypes, "CDLL", lambda path: loads.append(made.read_bytes()) or load(path))
    places = range(0, len(original), max(len(original) // 40, 1))
    for calls, place in enumerate(places, start=2):
        damaged = bytearray(original)
        damaged[place] ^= 1 << place % 8
        replace(made, damaged)
        assert build(folder).library is not None
        assert compiler.calls == calls
    assert len(loads) == len(places) and set(loads) == {original}


@pytest.mark.parametrize("damage", ["missing", "empty", "other"])
def test_a_library_without_its_hash_is_compiled_again(compiler, folder, made, damage):
    record = made.with_suffix(".sha256")
    expected = record.read_bytes()
    record.unlink() if damage == "missing" else record.write_bytes(b"" if damage == "empty" else expected[1:])
    assert build(folder).library is not None
    assert compiler.calls == 2 and record.read_bytes() == expected


@pytest.mark.skipif(os.name == "posix" and os.getuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("suffix", [".so", ".sha256"])
def test_a_file_planted_by_another_user_is_replaced(compiler, folder, made, suffix):
    os.chown(made.with_suffix(suffix), 12345, -1)
    assert build(folder).library is not None
    assert compiler.calls == 2 and made.with_suffix(suffix).stat().st_uid == os.getuid()


@pytest.mark.parametrize("suffix", [".so", ".sha256"])
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_can_write_is_replaced(compiler, folder, made, suffix, mode):
    made.with_suffix(suffix).chmod(mode)
    assert build(folder).library is not None
    assert compiler.calls == 2 and stat.S_IMODE(made.with_suffix(suffix).stat().st_mode) == 0o600


@pytest.mark.parametrize("suffix", [".so", ".sha256"])
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_is_replaced(compiler, folder, made, suffix, link):
    path, elsewhere = made.with_suffix(suffix), folder.parent / "elsewhere"
    path.rename(elsewhere)
    link(elsewhere, path)
    assert build(folder).library is not None
    assert compiler.calls == 2 and not path.is_symlink() and path.stat().st_nlink == 1


def test_a_pipe_in_its_place_does_not_hang_the_start(compiler, folder, made):
    made.unlink()
    os.mkfifo(made, 0o600)
    assert build(folder).library is not None
    assert compiler.calls == 2 and made.is_file()


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_write_into_is_not_trusted(compiler, folder, made, mode):
    folder.chmod(mode)
    assert build(folder) == Built(None, f"others can write into {folder}")


def test_a_folder_that_is_a_symbolic_link_is_not_trusted(compiler, folder, made):
    link = folder.with_name("link")
    link.symlink_to(folder)
    assert build(link).library is None
    assert "not a directory" in build(link).note


@pytest.mark.skipif(os.name == "posix" and os.getuid() != 0, reason="only root can give folders away")
def test_a_folder_of_another_user_is_not_trusted(compiler, folder, made):
    os.chown(folder, 12345, -1)
    assert build(folder) == Built(None, f"{folder} belongs to another user")


def test_a_compiler_that_fails_is_named_and_not_called_again_for_a_day(compiler, folder):
    compiler.answer("echo 'mycc: out of order' >&2; exit 1")
    for _ in range(3):
        found = build(folder)
        assert found.library is None and found.note == "mycc failed: mycc: out of order"
    assert compiler.calls == 1
    assert list(folder.iterdir()) == [found.failure]
    yesterday = time.time() - 25 * 3600
    os.utime(found.failure, (yesterday, yesterday))
    build(folder)
    assert compiler.calls == 2


def test_a_library_that_cannot_be_loaded_is_not_compiled_at_every_start(compiler, folder, unloadable):
    for _ in range(3):
        found = build(folder)
        assert found.library is None and "failed to map segment" in found.note
    assert compiler.calls == 1
    found.failure.unlink()
    build(folder)
    assert compiler.calls == 2


def test_another_compiler_is_tried_at_once_after_a_failure(compiler, folder, monkeypatch):
    compiler.answer("exit 1")
    assert build(folder).library is None
    compiler.answer(compiler.works)
    monkeypatch.setenv("CC", f"{compiler.path} -O1")
    assert build(folder).library is not None


def test_a_failure_is_forgotten_when_the_library_is_built(compiler, folder):
    compiler.answer("exit 1")
    failure = build(folder).failure
    failure.write_text("planted by somebody")
    failure.chmod(0o666)
    compiler.answer(compiler.works)
    assert build(folder).library is not None
    assert not failure.exists()


def test_doctor_shows_the_failure_and_the_file_to_remove(compiler, tmp_path, monkeypatch):
    compiler.answer("echo 'mycc: out of order' >&2; exit 1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(building, "_built", None)
    shown = " ".join(CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "500"}).output.split())
    assert "mycc failed: mycc: out of order" in shown
    [failure] = (tmp_path / "regard").iterdir()
    assert f"remove {failure}" in shown
