"""Splitting the input into shards, and the output folder. These tests do not need Ray."""

import gzip

import pytest

from regard.cluster.formats import TextFormat, pick_format
from regard.cluster.output import OutputFolder, OutputSettings, find_files, read_shards, scan_files, split_into_shards
from regard.errors import CheckpointError, ConfigError, DataError
from tests.commands import regard


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_files_of_a_folder_or_pattern_are_sorted_by_name(tmp_path):
    for name in ("b.txt", "a.txt", ".hidden", "_SUCCESS"):
        write(tmp_path / name, ["x"])
    assert [path.name for path in find_files(str(tmp_path))] == ["a.txt", "b.txt"]
    assert [path.name for path in find_files(str(tmp_path / "b*"))] == ["b.txt"]
    with pytest.raises(DataError, match="there is no text"):
        find_files(str(tmp_path / "c*"))


def test_shards_hold_all_lines_in_order_and_never_lines_of_two_files(tmp_path):
    write(tmp_path / "a.txt", ["1", "2", "", "4", "5"])
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"6\n7"))
    layout = TextFormat()
    shards = split_into_shards(scan_files(find_files(str(tmp_path)), layout), 2)
    texts = [rows.texts() for _, rows in read_shards(shards, layout, 2, range(4))]
    assert texts == [["1", "2"], ["", "4"], ["5"], ["6", "7"]]
    assert [shard.first for shard in shards] == [1, 3, 5, 1]
    wanted = [(shard.number, rows.texts()) for shard, rows in read_shards(shards, layout, 2, {1})]
    assert wanted == [(1, ["", "4"])]


def test_invalid_text_is_reported_before_any_work(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"good\nb\xff\n")
    with pytest.raises(DataError, match=r"line 2 of .*a\.txt is not UTF-8"):
        scan_files(find_files(str(tmp_path)), TextFormat())


def test_a_file_that_changes_during_translation_is_detected(tmp_path):
    path = write(tmp_path / "a.txt", ["1", "2", "3"])
    shards = split_into_shards(scan_files([path], TextFormat()), 2)
    write(path, ["1"])
    with pytest.raises(DataError, match="has changed"):
        list(read_shards(shards, TextFormat(), 2, {0, 1}))


def test_a_known_file_is_not_read_again_and_a_touched_one_has_the_same_hash(tmp_path):
    path = write(tmp_path / "a.txt", ["1", "2"])
    [known] = scan_files([path], TextFormat())

    class Unread(TextFormat):
        def count(self, path):
            raise AssertionError("it was read")

    assert scan_files([path], Unread(), [known]) == [known]
    path.touch()
    [again] = scan_files([path], TextFormat(), [known])
    assert again.sha256 == known.sha256


def test_text_and_parquet_cannot_be_mixed(tmp_path):
    with pytest.raises(DataError, match="one format at a time"):
        pick_format([tmp_path / "a.txt", tmp_path / "b.parquet"], "text")


@pytest.fixture
def settings(tmp_path):
    files = scan_files([write(tmp_path / "a.txt", ["1", "2", "3"])], TextFormat())
    return OutputSettings(files, None, 2, "run", "0123", {"beam": 1})


def begun(tmp_path, settings):
    folder = OutputFolder(tmp_path / "out", ".txt")
    with folder.opened() as stored:
        folder.begin(settings, stored, 2)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"search": {"beam": 4}}, r"\(beam: 1 -> 4\)"),
        ({"shard_lines": 3}, r"\(shard lines: 2 -> 3\)"),
        ({"model": "4567"}, "the weights of the run: 0123 -> 4567"),
        ({"files": []}, "input files; the text of"),
    ],
)
def test_a_folder_started_with_other_settings_is_refused(tmp_path, settings, change, message):
    from msgspec.structs import replace

    begun(tmp_path, settings)
    with pytest.raises(ConfigError, match=message):
        begun(tmp_path, replace(settings, **change))
    begun(tmp_path, replace(settings, run="moved"))


def test_part_names_sort_in_the_order_of_shards(tmp_path, settings):
    folder = begun(tmp_path, settings)
    first, second = split_into_shards(settings.files, 2)
    folder.write(second, b"3\n")
    assert (folder.is_done(first), folder.is_done(second)) == (False, True)
    assert sorted(path.name for path in folder.path.iterdir()) == [".lock", "part-00001.txt", "shards.json"]
    folder.begin(settings, settings, 100_001)
    assert folder.part(first) == "part-000000.txt"


def test_a_folder_with_other_files_is_refused(tmp_path, settings):
    (tmp_path / "out").mkdir()
    write(tmp_path / "out" / "thesis.txt", ["precious"])
    with pytest.raises(ConfigError, match=r"has files but no shards\.json"):
        begun(tmp_path, settings)


def test_two_commands_cannot_write_one_folder(tmp_path, settings):
    folder = begun(tmp_path, settings)
    with folder.opened(), pytest.raises(CheckpointError, match="another process is writing"):
        begun(tmp_path, settings)


def test_ray_options_without_ray_are_refused(tmp_path):
    result = regard("translate", "run", "in.txt", "--shard-lines", "3", cwd=tmp_path)
    assert result.returncode == 1 and "--shard-lines needs --ray" in result.stderr
    result = regard("translate", "run", "--ray", cwd=tmp_path)
    assert result.returncode == 1 and "OUTPUT folder" in result.stderr
