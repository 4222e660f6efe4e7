"""The input cut into shards and the output folder; no Ray is needed for these."""

import gzip

import pytest

from regard.cluster.formats import TextFormat, pick_format
from regard.cluster.output import OutputFolder, Plan
from regard.cluster.source import cut, find_files, read_shards, survey
from regard.errors import CheckpointError, ConfigError, DataError
from tests.cli.test_bad_input import regard


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_a_folder_or_a_pattern_is_its_files_in_order_of_names(tmp_path):
    for name in ("b.txt", "a.txt", ".hidden", "_SUCCESS"):
        write(tmp_path / name, ["x"])
    assert [path.name for path in find_files(str(tmp_path))] == ["a.txt", "b.txt"]
    assert [path.name for path in find_files(str(tmp_path / "b*"))] == ["b.txt"]
    with pytest.raises(DataError, match="there is no text"):
        find_files(str(tmp_path / "c*"))


def test_shards_hold_all_lines_in_order_and_never_those_of_two_files(tmp_path):
    write(tmp_path / "a.txt", ["1", "2", "", "4", "5"])
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"6\n7"))
    layout = TextFormat()
    shards = cut(survey(find_files(str(tmp_path)), layout), 2)
    texts = [chunk.texts() for _, chunk in read_shards(shards, layout, 2, range(4))]
    assert texts == [["1", "2"], ["", "4"], ["5"], ["6", "7"]]
    assert [shard.first for shard in shards] == [1, 3, 5, 1]
    wanted = [(shard.number, chunk.texts()) for shard, chunk in read_shards(shards, layout, 2, {1})]
    assert wanted == [(1, ["", "4"])]


def test_bad_text_is_named_before_any_work(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"good\nb\xff\n")
    with pytest.raises(DataError, match=r"line 2 of .*a\.txt is not UTF-8"):
        survey(find_files(str(tmp_path)), TextFormat())


def test_text_that_changes_meanwhile_is_noticed(tmp_path):
    path = write(tmp_path / "a.txt", ["1", "2", "3"])
    shards = cut(survey([path], TextFormat()), 2)
    write(path, ["1"])
    with pytest.raises(DataError, match="has changed"):
        list(read_shards(shards, TextFormat(), 2, {0, 1}))


def test_a_known_file_is_not_read_again_and_a_copy_of_it_is_known_by_its_hash(tmp_path):
    path = write(tmp_path / "a.txt", ["1", "2"])
    [known] = survey([path], TextFormat())

    class Unread(TextFormat):
        def count(self, path):
            raise AssertionError("it was read")

    assert survey([path], Unread(), [known]) == [known]
    path.touch()
    [again] = survey([path], TextFormat(), [known])
    assert again.sha256 == known.sha256


def test_text_and_parquet_do_not_mix(tmp_path):
    with pytest.raises(DataError, match="one kind at a time"):
        pick_format([tmp_path / "a.txt", tmp_path / "b.parquet"], "text")


@pytest.fixture
def plan(tmp_path):
    files = survey([write(tmp_path / "a.txt", ["1", "2", "3"])], TextFormat())
    return Plan(files, None, 2, "run", "0123", {"beam": 1})


def begun(tmp_path, plan):
    folder = OutputFolder(tmp_path / "out", ".txt")
    with folder.held():
        folder.begin(plan, folder.plan(), 2)
    return folder


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"search": {"beam": 4}}, r"beam differs \(1 then, 4 now\)"),
        ({"shard_lines": 3}, r"shard lines differs \(2 then, 3 now\)"),
        ({"model": "4567"}, "weights of the run differs"),
        ({"files": []}, "input files differs"),
    ],
)
def test_a_folder_begun_otherwise_is_refused(tmp_path, plan, change, told):
    from msgspec.structs import replace

    begun(tmp_path, plan)
    with pytest.raises(ConfigError, match=told):
        begun(tmp_path, replace(plan, **change))
    begun(tmp_path, replace(plan, run="moved"))


def test_the_order_of_names_is_the_order_of_shards(tmp_path, plan):
    folder = begun(tmp_path, plan)
    first, second = cut(plan.files, 2)
    folder.write(second, b"3\n")
    assert (folder.is_done(first), folder.is_done(second)) == (False, True)
    assert sorted(path.name for path in folder.path.iterdir()) == [".lock", "part-00001.txt", "shards.json"]
    folder.begin(plan, plan, 100_001)
    assert folder.part(first) == "part-000000.txt"


def test_a_folder_of_somebody_else_is_refused(tmp_path, plan):
    (tmp_path / "out").mkdir()
    write(tmp_path / "out" / "thesis.txt", ["precious"])
    with pytest.raises(ConfigError, match="not ours"):
        begun(tmp_path, plan)


def test_two_commands_do_not_write_one_folder(tmp_path, plan):
    folder = begun(tmp_path, plan)
    with folder.held(), pytest.raises(CheckpointError, match="another command is writing"):
        begun(tmp_path, plan)


def test_options_of_ray_without_it_are_a_mistake(tmp_path):
    result = regard("translate", "run", "in.txt", "out", cwd=tmp_path)
    assert result.returncode == 1 and "OUTPUT needs --ray" in result.stderr
    result = regard("translate", "run", "in.txt", "--shard-lines", "3", cwd=tmp_path)
    assert result.returncode == 1 and "--shard-lines needs --ray" in result.stderr
    result = regard("translate", "run", "--ray", cwd=tmp_path)
    assert result.returncode == 1 and "OUTPUT folder" in result.stderr
