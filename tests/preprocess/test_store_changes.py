"""A store that is damaged during training ends the run with one sentence; an inconsistent store is refused at the start."""

import json
import os
import signal
import subprocess

import msgspec
import pytest

from regard.data.pair_store import PairStore
from regard.errors import DataError
from regard.run.folder import RunFolder
from tests.commands import Forked
from tests.preprocess.test_training import train


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["truncated", "removed"])
def test_damage_during_training_is_one_sentence_and_keeps_the_last_checkpoint(make, folder, damage):
    make()
    path = folder / "ids" / "shard-00001" / "source.ids"
    settings = ["data.train.store=ids", "train.steps=100000", "train.log_every=1", "train.checkpoint_every=5"]
    command = ["train", "my.toml", "--out", "run", *settings]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = Forked(command, cwd=folder, stderr=subprocess.PIPE, environment=environment)
    for line in process.stderr:
        if line.startswith("step 7/"):
            break
    process.send_signal(signal.SIGSTOP)
    os.truncate(path, 100) if damage == "truncated" else path.unlink()
    process.send_signal(signal.SIGCONT)
    said = process.stderr.read()
    assert process.wait() == 1
    assert "Traceback" not in said
    [error] = [line for line in said.splitlines() if line.startswith("error: ")]
    assert "shard-00001/source.ids " in error and "restore it, or prepare the store again" in error
    assert RunFolder(folder / "run").steps(), "the last checkpoint was lost"


def test_ids_outside_the_vocabulary_are_refused(make, folder):
    make()
    path = folder / "ids" / "shard-00002" / "target.ids"
    path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(DataError, match=r"target.ids has ids outside the vocabulary of 80"):
        train(folder, "run", "data.train.store=ids")


@pytest.mark.parametrize(
    "changed",
    [
        {"pairs": 10**6},
        {"source_tokens": 1},
        {"source_ids": "float64"},
        {"lengths": [[10**15, 2300, 1, 1]]},
        {"lengths": [[1, 2]]},
        {"lengths": [[-1, 2300, 1, 1]]},
    ],
)
def test_inconsistent_numbers_are_refused(make, folder, changed):
    info = msgspec.structs.replace(make().info, **changed)
    info = msgspec.structs.replace(info, sha256=info.digest())
    (folder / "ids" / "store.json").write_text(json.dumps(msgspec.to_builtins(info)))
    with pytest.raises(DataError, match=r"store.json has numbers that contradict each other"):
        PairStore(folder / "ids")
