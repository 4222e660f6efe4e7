"""Files that are whole or not there: what a crash leaves behind, and what damage is found."""

import json
import os
import shutil
from pathlib import Path

import pytest

from regard.errors import CheckpointError
from regard.run.files import MANIFEST, check_folder, read_json, remove_folder, seal_folder, write_json, write_text


class Crash(Exception):
    """The power goes."""


def crash(*arguments, **options):
    raise Crash


@pytest.fixture
def no_renames(monkeypatch):
    """Everything works but the last step, the renaming."""
    monkeypatch.setattr(Path, "replace", crash)
    monkeypatch.setattr(os, "replace", crash)
    monkeypatch.setattr(os, "rename", crash)


@pytest.fixture
def sealed(tmp_path):
    """A folder with two files and their manifest."""
    return make_sealed(tmp_path, {"a.txt": "first", "b.txt": "second"})


def make_sealed(parent, contents, name="folder"):
    temporary = parent / f".{name}.tmp"
    temporary.mkdir()
    for file, text in contents.items():
        (temporary / file).write_text(text)
    seal_folder(temporary, parent / name)
    return parent / name


def test_text_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "note.txt"
    write_text(path, "old")
    write_text(path, "new é 年")
    assert path.read_text(encoding="utf-8") == "new é 年"
    assert list(tmp_path.iterdir()) == [path]


def test_a_crash_before_the_renaming_leaves_the_old_file_whole(tmp_path, request):
    path = tmp_path / "note.txt"
    write_text(path, "old")
    request.getfixturevalue("no_renames")
    with pytest.raises(Crash):
        write_text(path, "new")
    assert path.read_text() == "old"


def test_a_crash_while_writing_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "note.txt"
    write_text(path, "old")
    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(Crash):
        write_text(path, "new")
    assert path.read_text() == "old"


def test_what_a_crash_left_behind_does_not_stop_the_next_writing(tmp_path, monkeypatch):
    path = tmp_path / "note.txt"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(Crash):
            write_text(path, "a much longer text than the next")
    assert not path.exists()
    write_text(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_the_new_text_is_on_the_disk_before_it_takes_the_old_ones_place(tmp_path, monkeypatch):
    happened = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: (happened.append("fsync"), fsync(file))[1])
    monkeypatch.setattr(Path, "replace", lambda old, new: (happened.append("rename"), replace(old, new))[1])
    write_text(tmp_path / "note.txt", "text")
    assert happened == ["fsync", "rename", "fsync"]  # the file; its new name; the folder, which holds the name


def test_json_reads_back_as_what_was_written(tmp_path):
    value = {"step": 3, "best": None, "loss": 0.1, "words": ["é", "年"]}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"\xff", b"{} {}"])
def test_damaged_json_is_named(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_json(path)
    assert str(caught.value).startswith(f"{path} is damaged: ")


def test_missing_json_is_named(tmp_path):
    with pytest.raises(CheckpointError) as caught:
        read_json(tmp_path / "a.json")
    assert str(caught.value) == f"{tmp_path / 'a.json'} is missing"


# Folders


def test_a_sealed_folder_has_its_final_name_and_the_size_and_hash_of_each_file(sealed):
    # printf first | sha256sum
    first = "a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"
    manifest = json.loads((sealed / MANIFEST).read_text())["files"]
    assert manifest["a.txt"] == {"size": 5, "sha256": first}
    assert manifest.keys() == {"a.txt", "b.txt"}
    assert [path.name for path in sealed.parent.iterdir()] == ["folder"]
    check_folder(sealed)


def test_a_crash_before_the_renaming_leaves_no_folder_of_that_name(tmp_path, monkeypatch):
    replace = Path.replace

    def crash_on_folders(old, new):
        return crash() if old.is_dir() else replace(old, new)

    monkeypatch.setattr(Path, "replace", crash_on_folders)
    with pytest.raises(Crash):
        make_sealed(tmp_path, {"a.txt": "first"})
    assert not (tmp_path / "folder").exists()


def test_a_folder_that_is_there_is_replaced_with_nothing_of_the_old_one_left(sealed):
    make_sealed(sealed.parent, {"c.txt": "third"})
    assert sorted(path.name for path in sealed.iterdir()) == ["c.txt", MANIFEST]
    check_folder(sealed)


def test_a_crash_before_a_folder_is_replaced_leaves_the_old_one(sealed, monkeypatch):
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda old, new: crash() if old.is_dir() else replace(old, new))
    with pytest.raises(Crash):
        make_sealed(sealed.parent, {"a.txt": "newer"})
    check_folder(sealed)


def test_a_folder_is_removed_with_nothing_left(sealed):
    remove_folder(sealed)
    assert list(sealed.parent.iterdir()) == []


def test_a_crash_while_a_folder_is_removed_leaves_it_whole_or_not_there(sealed, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", crash)
        with pytest.raises(Crash):
            remove_folder(sealed)
    assert not sealed.exists()
    make_sealed(sealed.parent, {"a.txt": "newer"})
    remove_folder(sealed)  # and what the crash left does not stand in the way
    assert list(sealed.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["a.txt", "b.txt", MANIFEST])
def test_a_file_that_is_gone_is_named(sealed, name):
    (sealed / name).unlink()
    with pytest.raises(CheckpointError) as caught:
        check_folder(sealed)
    assert str(caught.value) == f"{sealed / name} is missing"


@pytest.mark.parametrize("content", ["firs", "First", "first ", ""])
def test_a_file_that_is_not_what_was_written_is_named(sealed, content):
    (sealed / "a.txt").write_text(content)
    with pytest.raises(CheckpointError) as caught:
        check_folder(sealed)
    assert str(caught.value) == f"{sealed / 'a.txt'} is damaged: it is not what was written"
