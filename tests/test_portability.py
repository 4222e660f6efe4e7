"""Systems without the modules and calls of Unix, such as Windows, import, translate and train on a CPU."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.cli import terminal
from regard.storage import locks

ROOT = Path(regard.__file__).parent
# Which modules know of a system, and what they know.
SYSTEM_MODULES = {"fcntl": "storage/locks.py", "msvcrt": "storage/locks.py", "resource": "storage/memory.py"}


@pytest.mark.slow
def test_regard_works_without_what_windows_does_not_have(tmp_path):
    script = Path(__file__).with_name("without_unix.py")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr[-3000:]
    imported, translated, trained = result.stdout.splitlines()
    # Without the extras, and without Triton, some cannot be imported here.
    assert int(imported.split()[1]) > 0.8 * len(list(ROOT.rglob("*.py")))
    assert "man" in translated.lower()
    assert trained == "trained 1"


def test_each_module_of_a_system_is_used_in_one_place():
    for name, place in SYSTEM_MODULES.items():
        texts = {path: path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}
        using = [
            str(path.relative_to(ROOT))
            for path, text in texts.items()
            if f'"{name}"' in text or f"import {name}\n" in text
        ]
        assert using == [place], name


class Bytes:
    """Locks of bytes as `msvcrt` has them, for the descriptors of one process."""

    LK_NBLCK = 2

    def __init__(self):
        self.held = {}

    def locking(self, descriptor, mode, count):
        place = os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR)
        if self.held.setdefault(place, descriptor) != descriptor:
            raise PermissionError(13, "locked")


def test_windows_locks_bytes_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "msvcrt", Bytes())
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert locks.try_lock(first)
    assert not locks.try_lock(second)
    # Another byte is another lock.
    assert locks.try_lock(second, byte=1)
    locks.wait_for_lock(second, byte=1)
    os.close(first)
    os.close(second)


def test_a_system_without_locks_locks_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "msvcrt", None)
    with (tmp_path / "lock").open("w") as file:
        assert locks.try_lock(file.fileno())
        locks.wait_for_lock(file.fileno())


def test_windows_writes_utf8_and_unix_line_ends_to_a_pipe(monkeypatch):
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="cp1252", newline="\r\n", errors="strict")
    monkeypatch.setattr(terminal.sys, "stdout", stream)
    monkeypatch.setattr(terminal.os, "name", "nt")
    terminal.write_utf8()
    monkeypatch.undo()
    stream.write("年\n")
    stream.flush()
    assert written.getvalue() == "年\n".encode()
