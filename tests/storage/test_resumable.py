"""A folder that is filled once and resumed: other settings, other files and a second writer are refused."""

import pytest

from regard.errors import CheckpointError, ConfigError
from regard.storage.resumable import ResumableFolder


@pytest.fixture
def folder(tmp_path):
    return ResumableFolder(tmp_path / "out", settings="settings.json", early=["tokenizer"])


def test_a_new_folder_has_no_settings_and_a_resumed_one_has_those_it_was_started_with(folder):
    with folder.opened() as stored:
        assert stored is None
        folder.save_json("settings.json", {"beam": 4})
    with folder.opened() as stored:
        assert stored == {"beam": 4}


def test_settings_that_differ_are_named_with_short_values(folder):
    folder.refuse_changes({"beam": 4, "files": ["a"]}, {"beam": 4, "files": ["a"]})
    with pytest.raises(ConfigError, match=r"started with other settings \(beam: 4 -> 2\); repeat the command"):
        folder.refuse_changes({"beam": 4, "lines": 3}, {"beam": 2, "lines": 3})
    with pytest.raises(ConfigError, match=r"\(files; model; old: 1 -> None\)"):
        folder.refuse_changes({"files": ["a"], "model": "a" * 64, "old": 1}, {"files": ["b"], "model": "b" * 64})


def test_a_folder_with_files_of_something_else_is_refused_and_left_alone(folder):
    folder.make().save_text("thesis.txt", "precious")
    with pytest.raises(ConfigError, match=r"has files but no settings\.json"), folder.opened():
        pass
    assert folder.names() == ["thesis.txt"]


def test_a_file_in_place_of_the_folder_is_refused(folder):
    folder.path.write_text("a file")
    with pytest.raises(ConfigError, match="is not a folder"), folder.opened():
        pass


def test_leftovers_of_a_killed_process_are_deleted_and_do_not_count_as_foreign(folder):
    (folder / "tokenizer").make()
    folder.save_text(".settings.json.0123.tmp", "{")
    with folder.opened() as stored:
        assert stored is None
    assert folder.names() == [".lock", "tokenizer"]


def test_a_second_writer_is_refused(folder):
    with folder.opened(), pytest.raises(CheckpointError, match="another process is writing"), folder.opened():
        pass


@pytest.mark.parametrize("content", ["[]", "{", "3"])
def test_damaged_settings_are_refused_by_name(folder, content):
    folder.make().save_text("settings.json", content)
    with pytest.raises(CheckpointError, match=r"settings\.json is damaged"), folder.opened():
        pass
