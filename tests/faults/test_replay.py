"""The crash model: what POSIX allows to be lost is lost in some state, and synced changes in none."""

import sys

import pytest

from tests.faults.crashes import build_recorder, recorded
from tests.faults.replay import NOTHING_UNSYNCED, Operation, Recording, read_log, read_tree, write_tree

OPEN = Operation("O", "new", number=1)
WRITE = Operation("W", "new", data=b"content")
SYNC_FILE = Operation("F", "new")
RENAME = Operation("R", "new", "file")
SYNC_FOLDER = Operation("F", "")


def states(*operations):
    return [state.tree for state in Recording(operations).states()]


def contents(*operations):
    """Return the possible contents of `file` after a crash at any time; None if it is missing."""
    return {tree.get("file") for tree in states(*operations)}


@pytest.fixture(scope="module")
def recorder(tmp_path_factory):
    library = build_recorder(tmp_path_factory.mktemp("recorder"))
    if library is None:
        pytest.skip("there is no C compiler here to build the recorder with")
    return library


def test_a_rename_without_fsync_may_leave_an_empty_file():
    assert contents(OPEN, WRITE, RENAME) >= {None, b"", b"content", bytes(7), b"con"}


def test_a_rename_of_a_synced_file_leaves_all_of_it_or_nothing():
    assert contents(OPEN, WRITE, SYNC_FILE, RENAME) == {None, b"content"}


def test_a_file_name_is_durable_only_after_its_folder_is_synced():
    done = [OPEN, WRITE, SYNC_FILE, RENAME]
    assert {} in [state.tree for state in Recording(done).states() if state.after == 4]
    after_sync = [state.tree for state in Recording([*done, SYNC_FOLDER]).states() if state.after == 5]
    assert after_sync == [{"file": b"content"}]


def test_a_folder_whose_parent_is_not_synced_may_be_lost_with_its_synced_content():
    made = [Operation("D", "a"), Operation("O", "a/b", number=1), Operation("F", "a/b"), Operation("F", "a")]
    assert {} in states(*made)
    assert [state.tree for state in Recording([*made, SYNC_FOLDER]).states() if state.after == 5] == [
        {"a": None, "a/b": b""}
    ]


def test_writes_may_be_reordered():
    first, second = Operation("W", "new", data=b"one"), Operation("W", "new", number=3, data=b"two")
    found = [tree.get("new") for tree in states(OPEN, first, second)]
    assert {b"onetwo", b"one", b"\0\0\0two", b""} <= set(found)


def test_a_long_write_may_be_torn_at_sectors():
    data = b"a" * 512 + b"b" * 512 + b"c"
    found = [tree.get("new") for tree in states(OPEN, Operation("W", "new", data=data))]
    assert {b"a" * 512, bytes(512) + b"b" * 512 + b"\0", data[:512]} <= set(found)


def test_a_rename_over_a_file_leaves_the_old_one_or_the_new_one():
    old = [Operation("O", "file", number=1), Operation("W", "file", data=b"old"), Operation("F", "file"), SYNC_FOLDER]
    found = [state.tree for state in Recording([*old, OPEN, WRITE, SYNC_FILE, RENAME]).states() if state.after >= 4]
    assert {tree["file"] for tree in found} == {b"old", b"content"}


def test_a_removed_file_may_reappear_until_the_folder_is_synced():
    made = [OPEN, SYNC_FOLDER, Operation("U", "new")]
    assert {"new": b""} in [state.tree for state in Recording(made).states() if state.after == 3]
    assert [state.tree for state in Recording([*made, SYNC_FOLDER]).states() if state.after == 4] == [{}]


def test_a_truncation_may_be_lost():
    made = [OPEN, WRITE, SYNC_FILE, SYNC_FOLDER, Operation("T", "new", number=3), Operation("F", "new")]
    assert {tree.get("new") for tree in states(*made)} >= {b"content", b"con"}
    assert [state.tree for state in Recording(made).states() if state.after == 6] == [{"new": b"con"}]


def test_of_equal_states_the_latest_is_kept():
    recording = Recording([OPEN, SYNC_FOLDER, Operation("M", "saved")])
    (last,) = [state for state in recording.states() if state.tree]
    assert recording.marks(last.after) == ["saved"]


def test_the_worst_state_after_the_last_operation_is_found_by_name():
    (worst,) = [state for state in Recording([OPEN]).states() if state.how == NOTHING_UNSYNCED]
    assert worst.tree == {} and worst.after == 1


def test_a_tree_is_read_as_it_was_written(tmp_path):
    tree = {"a": None, "a/b": b"x", "c": "a/b"}
    write_tree(tree, tmp_path / "one")
    assert read_tree(tmp_path / "one") == tree


# The recorder

EVERY_CALL = """
import ctypes, os, pathlib, shutil, sys, threading
folder = pathlib.Path(sys.argv[1])
os.chdir(folder)
(folder / "a").mkdir()
with open("a/file", "wb") as file:
    file.write(b"hello")
with open("a/file", "ab") as file:
    file.write(b" world")
    file.flush()
    os.fsync(file.fileno())
shutil.copyfile("a/file", "copy")
shutil.copytree("a", "b")
directory = os.open("a", os.O_RDONLY | os.O_DIRECTORY)
descriptor = os.open("temporary", os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600, dir_fd=directory)
os.write(descriptor, b"123")
os.rename("temporary", "renamed", src_dir_fd=directory, dst_dir_fd=directory)
twin = os.dup(descriptor)
os.write(twin, b"456")
os.pwrite(descriptor, b"X", 1)
os.writev(descriptor, [b"7", b"89"])
os.pwritev(descriptor, [b"Y", b"Z"], 3)
os.ftruncate(descriptor, 8)
os.posix_fallocate(descriptor, 0, 20)
os.fdatasync(descriptor)
os.close(descriptor)
os.unlink("renamed", dir_fd=directory)
os.write(twin, b"nowhere")
os.fsync(directory)
os.link("copy", "linked")
os.symlink("copy", "symbolic")
os.truncate("linked", 2)
source, target = os.open("a/file", os.O_RDONLY), os.open("ranges", os.O_CREAT | os.O_WRONLY)
os.copy_file_range(source, target, 5)
os.sendfile(target, source, 5, 6)
child = os.fork()
if child == 0:
    (folder / "of-a-child").write_text("child")
    os._exit(0)
os.waitpid(child, 0)
threads = [threading.Thread(target=(folder / f"thread-{n}").write_bytes, args=(bytes(9999),)) for n in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
os.mkdir("empty")
os.rmdir("empty")
shutil.rmtree("b")
os.replace("copy", "a/moved")
ctypes.CDLL(None).record_mark(b"the end")
"""


def test_replaying_a_recording_gives_the_real_folder(recorder, tmp_path):
    disk, log = tmp_path / "disk", tmp_path / "log"
    disk.mkdir()
    assert recorded([sys.executable, "-c", EVERY_CALL, str(disk)], disk, log, recorder).returncode == 0
    recording = Recording(read_log(log))
    assert recording.final() == read_tree(disk)
    assert recording.marks(len(recording.operations)) == ["the end"]
    assert {operation.kind for operation in recording.operations} == set("OWTFDURLYM")


@pytest.mark.parametrize(
    "code",
    [
        "import mmap; file = open('x', 'w+b'); file.write(b'1'); file.flush(); mmap.mmap(file.fileno(), 1)",
        "import ctypes; ctypes.CDLL(None).fopen(b'x', b'w')",
        "os.open('.', os.O_TMPFILE | os.O_RDWR)",
    ],
)
def test_operations_that_cannot_be_recorded_abort_the_process(recorder, tmp_path, code):
    disk = tmp_path / "disk"
    disk.mkdir()
    done = recorded(
        [sys.executable, "-c", f"import os; os.chdir({str(disk)!r}); {code}"], disk, tmp_path / "log", recorder
    )
    assert done.returncode < 0 and "cannot be recorded" in done.stderr


WRITER = """
import os, pathlib, sys
folder, careful = pathlib.Path(sys.argv[1]), sys.argv[2] == "careful"
def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
for text in ("first" * 200, "second" * 200):
    (folder / "temporary").write_text(text)
    if careful:
        sync(folder / "temporary")
    os.replace(folder / "temporary", folder / "file")
    if careful:
        sync(folder)
"""


@pytest.mark.parametrize(("kind", "safe"), [("careful", True), ("careless", False)])
def test_a_writer_without_fsync_is_caught(recorder, tmp_path, kind, safe):
    disk, log = tmp_path / "disk", tmp_path / "log"
    disk.mkdir()
    assert recorded([sys.executable, "-c", WRITER, str(disk), kind], disk, log, recorder).returncode == 0
    found = {state.tree.get("file") for state in Recording(read_log(log)).states()}
    allowed = {None, b"first" * 200, b"second" * 200}
    assert (found <= allowed) == safe, found - allowed
