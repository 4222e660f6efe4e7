"""Folders are complete or absent after a crash, and damage is detected."""

import json
import os
import shutil

import pytest

from regard.errors import CheckpointError
from regard.storage.folder import Folder
from regard.storage.manifest import (
    MANIFEST,
    check_folder,
    complete_replacement,
    read_checked,
    remove_folder,
    replace_files,
    staged,
    sweep,
)


class Crash(BaseException):
    """A power failure: nothing is cleaned up."""


def crash(*arguments, **options):
    raise Crash


def crash_at(monkeypatch, count):
    """Crash at the `count`th rename."""
    replace, calls = os.replace, []

    def limited(*arguments, **options):
        calls.append(arguments)
        return crash() if len(calls) == count else replace(*arguments, **options)

    monkeypatch.setattr(os, "replace", limited)


@pytest.fixture
def sealed(tmp_path):
    """A folder with two files and their manifest."""
    return make_sealed(tmp_path, {"a.txt": "first", "b.txt": "second"})


def make_sealed(parent, contents, name="folder"):
    with staged(Folder(parent), name) as folder:
        for file, text in contents.items():
            folder.save_text(file, text)
    return parent / name


def test_a_staged_folder_has_a_manifest_with_the_size_and_hash_of_each_file(sealed):
    # printf first | sha256sum
    first = "a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"
    manifest = json.loads((sealed / MANIFEST).read_text())["files"]
    assert manifest["a.txt"] == {"size": 5, "sha256": first}
    assert manifest.keys() == {"a.txt", "b.txt"}
    assert [path.name for path in sealed.parent.iterdir()] == ["folder"]
    check_folder(Folder(sealed))


@pytest.mark.parametrize("rename", [1, 2, 3])  # a.txt, the manifest, the folder itself
def test_a_crash_before_a_rename_leaves_no_folder_of_that_name(tmp_path, monkeypatch, rename):
    with monkeypatch.context() as patch:
        crash_at(patch, rename)
        with pytest.raises(Crash):
            make_sealed(tmp_path, {"a.txt": "first"})
    assert not (tmp_path / "folder").exists() and list(tmp_path.iterdir())
    sweep(Folder(tmp_path))
    assert not list(tmp_path.iterdir())


def test_an_error_while_a_folder_is_filled_leaves_nothing(tmp_path):
    def fill():
        with staged(Folder(tmp_path), "folder") as folder:
            folder.save_text("a.txt", "text")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        fill()
    assert not list(tmp_path.iterdir())


def test_staging_over_a_folder_replaces_all_of_it(sealed):
    make_sealed(sealed.parent, {"c.txt": "third"})
    assert sorted(path.name for path in sealed.iterdir()) == ["c.txt", MANIFEST]
    check_folder(Folder(sealed))


def test_a_crash_before_a_folder_is_replaced_leaves_the_old_one(sealed, monkeypatch):
    crash_at(monkeypatch, 3)
    with pytest.raises(Crash):
        make_sealed(sealed.parent, {"a.txt": "newer"})
    check_folder(Folder(sealed))
    assert (sealed / "a.txt").read_text() == "first"


def test_removing_a_folder_leaves_nothing(sealed):
    remove_folder(Folder(sealed.parent), "folder")
    assert list(sealed.parent.iterdir()) == []


def test_after_a_crash_a_removed_folder_is_complete_or_absent(sealed, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", crash)
        with pytest.raises(Crash):
            remove_folder(Folder(sealed.parent), "folder")
    assert not sealed.exists()
    sweep(Folder(sealed.parent))
    assert list(sealed.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["a.txt", "b.txt", MANIFEST])
def test_an_error_names_the_missing_file(sealed, name):
    (sealed / name).unlink()
    with pytest.raises(CheckpointError) as caught:
        check_folder(Folder(sealed))
    assert str(caught.value) == f"{sealed / name} is missing"


@pytest.mark.parametrize("content", ["firs", "First", "first ", ""])
def test_an_error_names_the_damaged_file(sealed, content):
    (sealed / "a.txt").write_text(content)
    with pytest.raises(CheckpointError) as caught:
        check_folder(Folder(sealed))
    assert str(caught.value) == f"{sealed / 'a.txt'} is damaged: it is not what was written"


def reseal(folder, files):
    """Write a manifest with any content and a valid checksum, as an attacker can."""
    from regard.storage.manifest import _manifest_text

    (folder / MANIFEST).write_bytes(_manifest_text(files))


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/passwd", "..", "a/b", ""])
def test_a_manifest_that_names_a_path_is_refused(sealed, name):
    reseal(sealed, {name: {"size": 1, "sha256": "0"}})
    with pytest.raises(CheckpointError, match="is not a file name"):
        check_folder(Folder(sealed))


@pytest.mark.parametrize("entry", [None, [], "x", {}, {"size": "5"}, 10**400])
def test_a_manifest_with_invalid_entries_is_refused_by_name(sealed, entry):
    reseal(sealed, {"a.txt": entry})
    with pytest.raises(CheckpointError, match=r"a\.txt is damaged"):
        check_folder(Folder(sealed))


# Files that are replaced together


def both(folder):
    return [read_checked(Folder(folder), name).decode() for name in ("a.txt", "b.txt")]


def test_files_are_replaced_with_their_entries_in_the_manifest(sealed):
    replace_files(Folder(sealed), {"a.txt": b"new"})
    assert both(sealed) == ["new", "second"]
    check_folder(Folder(sealed))
    assert sorted(path.name for path in sealed.iterdir()) == ["a.txt", "b.txt", MANIFEST]


# Renames: .a.txt.new, .b.txt.new, the manifest, a.txt, b.txt
@pytest.mark.parametrize(("rename", "found"), [(1, "old"), (2, "old"), (3, "old"), (4, "new"), (5, "new")])
def test_after_a_crash_all_files_are_old_or_all_are_new(tmp_path, monkeypatch, rename, found):
    folder = make_sealed(tmp_path, {"a.txt": "old", "b.txt": "old"})
    with monkeypatch.context() as patch:
        crash_at(patch, rename)
        with pytest.raises(Crash):
            replace_files(Folder(folder), {"a.txt": b"new", "b.txt": b"new"})
    assert both(folder) == [found, found]
    check_folder(Folder(folder))
    complete_replacement(Folder(folder))
    sweep(Folder(folder))
    assert both(folder) == [found, found]
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "b.txt", MANIFEST]


def test_a_planted_new_file_that_the_manifest_does_not_list_is_ignored(sealed, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (sealed / ".a.txt.new").symlink_to(tmp_path / "secret")
    assert both(sealed) == ["first", "second"]
    replace_files(Folder(sealed), {"a.txt": b"new"})
    assert (tmp_path / "secret").read_text() == "secret"
    assert both(sealed) == ["new", "second"]
