"""A store holds the ids of its text, and an interruption loses at most one shard."""

import gzip
import hashlib
import io
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from regard.errors import CheckpointError, ConfigError, DataError
from regard.preprocess import shards
from regard.preprocess.prepare import PrepareProgress, store_problems
from regard.preprocess.shards import first_sample, spread_sample
from regard.storage.folder import Folder
from regard.text.corpus import Pair, read_pairs
from regard.text.tokenizer_pair import load_tokenizers
from tests.preprocess.conftest import PAIRS, lines

KILLED = """
import sys, time
from pathlib import Path
from regard.recipe_files import load_recipe
from regard.preprocess import prepare, shards
prepare.PAIRS_PER_SHARD, shards.CHUNK_PAIRS = 500, 100
folder = Path(sys.argv[1])
prepare.prepare(load_recipe(str(folder / "my.toml")), folder / "killed", folders=[folder], report=lambda _: time.sleep(0.02))
"""


def contents(store):
    """Return the hashes of all files except the lock."""
    files = [path for path in store.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize(
    "overrides", [(), ("tokenizer.kind=word", "tokenizer.joint=false"), ("tokenizer.kind=unigram",)]
)
def test_a_store_holds_the_ids_of_each_pair(make, folder, overrides):
    store = make(overrides=overrides)
    assert len(store) == PAIRS and [shard.pairs for shard in store.info.shards] == [500, 500, 500, 500, 300]
    tokenizers = load_tokenizers(Folder(store.folder / "tokenizer"))
    sides, (rows,) = store.encoded(tokenizers).read([np.arange(PAIRS)])
    for row, pair in zip(rows, read_pairs(folder / "train.tsv"), strict=True):
        assert sides["source"][row] == tokenizers.source.encode(pair.source)
        assert sides["target"][row] == tokenizers.target.encode(pair.target)


def test_ids_of_a_small_vocabulary_take_two_bytes(make):
    info = make().info
    assert (info.source_ids, info.target_ids) == ("uint16", "uint16")


def test_two_files_gzip_and_a_stream_give_the_same_ids(make, folder, monkeypatch):
    columns = [line.rstrip("\n").split("\t") for line in lines()]
    for side, name in enumerate(("train.a", "train.b.gz")):
        text = "".join(column[side] + "\n" for column in columns).encode()
        (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    stream = io.BufferedReader(io.BytesIO("".join(lines()).encode()))
    monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": stream}))
    hashes = {
        tuple(shard.sha256 for shard in store.info.shards)
        for store in (
            make("table"),
            make("files", ['data.train={source="train.a", target="train.b.gz"}']),
            make("stream", ['data.train={pairs="-"}']),
        )
    }
    assert len(hashes) == 1


def test_a_killed_process_resumes_and_writes_the_same_bytes(make, folder):
    make("complete")
    kills = 0
    for wanted in (0, 1, 3):  # finished shards when the process is killed
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)])
        end = time.monotonic() + 60
        while not list((folder / "killed").glob(f".shard-{wanted:05d}.*.tmp")):
            assert time.monotonic() < end and process.poll() is None, process.poll()
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        assert not (folder / "killed" / "store.json").exists()
    assert kills == 3
    doing = []
    make("killed", report=lambda progress: doing.append(progress))
    assert next(one for one in doing if one.doing == "encoding").before >= 1_500, "finished shards were made again"
    assert contents(folder / "killed") == contents(folder / "complete")


def test_a_finished_store_is_not_prepared_again(make, folder):
    make()
    (folder / "train.tsv").touch()
    make(report=lambda progress: pytest.fail("there is nothing to do"))


def test_progress_has_the_pairs_done_and_the_total(make):
    seen: list[PrepareProgress] = []
    make(report=seen.append)
    encoded = [one for one in seen if one.doing == "encoding"]
    assert [one.pairs for one in encoded] == list(range(100, PAIRS + 1, 100))
    assert {one.total for one in encoded} == {PAIRS} and encoded[-1].seconds > 0


def interrupt_after(pairs):
    def report(progress):
        if progress.doing == "encoding" and progress.pairs >= pairs:
            raise KeyboardInterrupt

    return report


def test_text_that_changed_during_an_interruption_is_refused(make, folder):
    with pytest.raises(KeyboardInterrupt):
        make(report=interrupt_after(1_200))
    text = (folder / "train.tsv").read_text()
    (folder / "train.tsv").write_text(text.replace("haus", "maus", 1))
    with pytest.raises(DataError, match=r"the text has changed since .*shard-00000 was made; restore it"):
        make()
    (folder / "train.tsv").write_text(text + "ein\tzwei\n")
    with pytest.raises(ConfigError, match=r"ids was started with other settings \(bytes"):
        make()


def test_other_settings_and_other_folders_are_refused(make, folder):
    make()
    with pytest.raises(
        ConfigError, match=r"other settings \(tokenizer.size: 80 -> 90\); repeat the command with the original"
    ):
        make(overrides=["tokenizer.size=90"])
    (folder / "else").mkdir()
    (folder / "else" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match=r"else has files but no .* not made by this command; choose"):
        make("else")
    with pytest.raises(ConfigError, match=r"set tokenizer\.sampling=0 to prepare a store"):
        make("new", ["tokenizer.sampling=0.1"])


def test_a_second_writer_is_refused(make, folder):
    with (
        Folder(folder / "ids").locked(busy=""),
        pytest.raises(CheckpointError, match=r"another process is writing .*ids; wait for it"),
    ):
        make()


@pytest.mark.parametrize("bad", ["no tab", "one\t", "a\tb\tc", "\ty", "x\0\ty"])
def test_a_bad_line_is_named_and_no_files_remain(make, folder, bad):
    text = lines()
    text[1_234] = f"{bad}\n"
    (folder / "train.tsv").write_text("".join(text))
    with pytest.raises(DataError, match=r"line 1235 of .*train\.tsv "):
        make()
    assert [path.name for path in (folder / "ids").iterdir()] == [".lock"]


def test_damaged_files_are_named(make, folder):
    store = make()
    assert list(store_problems(store)) == []
    path = folder / "ids" / "shard-00002" / "target.ids"
    content = path.read_bytes()
    path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    (folder / "ids" / "tokenizer" / "joint.model").write_bytes(b"")
    assert [problem.split("/")[-2:] for problem in store_problems(store)] == [
        ["tokenizer", "joint.model is damaged: it is not what was written"],
        ["shard-00002", "target.ids is damaged: it is not what was written"],
    ]


def test_a_damaged_shard_of_an_unfinished_store_is_prepared_again(make, folder):
    make("complete")
    with pytest.raises(KeyboardInterrupt):
        make(report=interrupt_after(1_700))
    (folder / "ids" / "shard-00001" / "source.ids").write_bytes(b"")
    make()
    assert contents(folder / "ids") == contents(folder / "complete")


def test_a_sample_is_spread_evenly_and_limited(monkeypatch):
    monkeypatch.setattr(shards, "SAMPLE_PAIRS", 100)
    kept, count = spread_sample(iter(Pair(str(number), "x") for number in range(1, 1_001)))
    assert count == 1_000
    assert [int(pair.source) for pair in kept] == list(range(16, 1_001, 16))
    monkeypatch.setattr(shards, "SAMPLE_CHARS", 60)
    kept, _ = spread_sample(iter(Pair("abc", "def") for _ in range(80)))
    assert len(kept) == 10


def test_the_sample_of_a_stream_is_its_beginning_and_the_stream_stays_complete(monkeypatch):
    monkeypatch.setattr(shards, "SAMPLE_PAIRS", 3)
    pairs = [Pair(str(number), "x") for number in range(5)]
    kept, stream = first_sample(iter(pairs))
    assert (kept, list(stream)) == (pairs[:3], pairs)
