"""An untrusted folder: nothing in it leads outside, blocks or is too large; a crash leaves the old file or the new one."""

import errno
import json
import os
import socket

import pytest

from regard.errors import CheckpointError
from regard.storage import directory, locks
from regard.storage.folder import MIB, Folder, parse_json


class Crash(BaseException):
    """A power failure."""


def crash(*arguments, **options):
    raise Crash


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret.txt"
    path.write_text("secret")
    return path


@pytest.fixture(params=["descriptors", "paths"])
def folder(tmp_path, monkeypatch, request):
    """A folder that is opened by descriptors, or by paths, as on Windows."""
    monkeypatch.setattr(directory, "_HAS_DESCRIPTORS", request.param == "descriptors")
    (tmp_path / "folder").mkdir()
    return Folder(tmp_path / "folder")


# Writing


def test_saving_replaces_a_file_and_leaves_no_other(folder):
    folder.save_text("note.txt", "old")
    folder.save_text("note.txt", "new é 年")
    assert folder.load_text("note.txt") == "new é 年"
    assert folder.names() == ["note.txt"]


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_crash_leaves_the_old_file_intact(folder, monkeypatch, call):
    folder.save_text("note.txt", "old")
    monkeypatch.setattr(os, call, crash)
    with pytest.raises(Crash):
        folder.save_text("note.txt", "new")
    assert folder.load_text("note.txt") == "old"


def test_the_new_content_is_on_disk_before_it_replaces_the_old(folder, monkeypatch):
    happened = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (happened.append("fsync"), fsync(file))[1])
    monkeypatch.setattr(os, "replace", lambda *names, **more: (happened.append("rename"), replace(*names, **more))[1])
    folder.save_text("note.txt", "text")
    # The file, its new name, and the folder that holds the name, where a folder can be flushed.
    assert happened == ["fsync", "rename", "fsync"][: 3 if directory._HAS_DESCRIPTORS else 2]


def test_saving_replaces_a_link_and_leaves_its_target_alone(folder, secret):
    (folder.path / "card.md").symlink_to(secret)
    folder.save_text("card.md", "new")
    assert secret.read_text() == "secret"
    assert folder.load_text("card.md") == "new"


def test_a_temporary_name_cannot_be_guessed(folder, monkeypatch):
    names = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda old, new, **more: (names.append(str(old)), replace(old, new, **more))[1])
    for _ in range(2):
        folder.save_text("card.md", "text")
    assert len(set(names)) == 2 and all(len(name) >= 20 for name in names)


@pytest.mark.parametrize("write", ["append_file", "create_file"])
def test_writing_through_a_link_is_refused(folder, secret, write):
    (folder.path / "log.jsonl").symlink_to(secret)
    with pytest.raises((CheckpointError, FileExistsError)):
        getattr(folder, write)("log.jsonl")
    assert secret.read_text() == "secret"


def test_appending_to_a_hard_linked_file_is_refused(folder, secret):
    os.link(secret, folder.path / "log.jsonl")
    with pytest.raises(CheckpointError, match="hard link"):
        folder.append_file("log.jsonl")


def test_locking_does_not_follow_a_link_and_does_not_truncate_a_file(folder, secret):
    (folder.path / ".lock").symlink_to(secret)
    with pytest.raises(CheckpointError, match="symbolic link"), folder.locked(busy="busy"):
        pass
    (folder.path / ".lock").unlink()
    (folder.path / ".lock").write_text("kept")
    with folder.locked(busy="busy"):
        assert (folder.path / ".lock").read_text() == "kept"


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EWOULDBLOCK, "^busy$"),
        (errno.EACCES, "^busy$"),
        (errno.ENOLCK, "cannot be locked .No locks available."),
        (errno.EOPNOTSUPP, "cannot be locked .*use a folder on a disk"),
    ],
)
def test_only_a_lock_that_is_held_is_reported_as_busy(folder, monkeypatch, number, expected):
    def refuse(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with pytest.raises(CheckpointError, match=expected), folder.locked(busy="busy"):
        pass


def test_removing_a_link_to_a_folder_leaves_the_folder_alone(folder, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept.txt").write_text("kept")
    (folder.path / "checkpoints").symlink_to(tmp_path / "other")
    folder.remove("checkpoints")
    assert (tmp_path / "other" / "kept.txt").exists() and folder.names() == []


# Reading


def test_a_link_to_a_file_is_refused_by_name(folder, secret):
    (folder.path / "card.json").symlink_to(secret)
    with pytest.raises(CheckpointError, match=r"card\.json is a symbolic link"):
        folder.load_text("card.json")
    assert not folder.has_file("card.json")


def test_a_link_at_any_level_is_refused_by_name(folder, tmp_path):
    (tmp_path / "other" / "inner").mkdir(parents=True)
    (tmp_path / "other" / "inner" / "a.txt").write_text("secret")
    (folder.path / "checkpoints").symlink_to(tmp_path / "other")
    with pytest.raises(CheckpointError, match="checkpoints is a symbolic link"):
        (folder / "checkpoints" / "inner").load_text("a.txt")
    with pytest.raises(CheckpointError, match="checkpoints is a symbolic link"):
        (folder / "checkpoints").save_text("a.txt", "new")
    with pytest.raises(CheckpointError, match="checkpoints is a symbolic link"):
        (folder / "checkpoints" / "new").make()
    assert (folder / "checkpoints").names() == []
    assert not folder.has_folder("checkpoints")


def test_the_folder_that_the_user_named_may_be_a_link(folder, tmp_path):
    folder.save_text("a.txt", "text")
    (tmp_path / "latest").symlink_to(folder.path)
    assert Folder(tmp_path / "latest").load_text("a.txt") == "text"


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    socket.socket(socket.AF_UNIX).bind(str(path))


@pytest.mark.parametrize("make", [os.mkdir, make_pipe, make_socket])
def test_a_special_file_is_refused_without_blocking(folder, make, monkeypatch):
    monkeypatch.chdir(folder.path)  # socket paths must be short
    make("a.txt")
    with pytest.raises(CheckpointError, match=r"a\.txt is not a regular file"):
        folder.load_text("a.txt")


def test_a_file_that_is_too_large_is_refused_before_it_is_read(folder):
    with open(folder.path / "a.txt", "wb") as file:
        file.truncate(2**40)
    with pytest.raises(CheckpointError, match=r"a\.txt is larger than such a file may be \(1,048,576 bytes\)"):
        folder.load_bytes("a.txt", limit=MIB)


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/passwd", "..", ".", "", "a/b", "a\0b", "x" * 256])
def test_only_bare_names_are_opened(folder, secret, name):
    for method in ("load_bytes", "has_file", "append_file", "create_file", "remove", "__truediv__"):
        with pytest.raises(CheckpointError, match="is not a file name"):
            getattr(folder, method)(name)


def test_json_reads_back_as_what_was_written(folder):
    value = {"step": 3, "best": None, "loss": 0.1, "words": ["é", "年"]}
    folder.save_json("a.json", value)
    assert folder.load_json("a.json") == value


ODD_JSON = {
    "empty": b"",
    "cut off": b'{"a": 1',
    "not UTF-8": b"\xff",
    "two values": b"{} {}",
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 100_000,
    "many digits": b"1" * 5000,
    "not a number": b"NaN",
    "infinite": b"[-Infinity]",
    "too large a float": b"1e999",
}


@pytest.mark.parametrize("content", ODD_JSON.values(), ids=ODD_JSON.keys())
def test_an_error_names_the_damaged_json_file(folder, content):
    (folder.path / "a.json").write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        folder.load_json("a.json")
    assert str(caught.value).startswith(f"{folder.path / 'a.json'} is damaged: ")


def test_an_error_names_the_missing_json_file(folder):
    with pytest.raises(CheckpointError) as caught:
        folder.load_json("a.json")
    assert str(caught.value) == f"{folder.path / 'a.json'} is missing"


def test_large_finite_numbers_are_read():
    assert parse_json(json.dumps([1e308, 2**100, -0.5]).encode(), origin="x") == [1e308, 2**100, -0.5]
