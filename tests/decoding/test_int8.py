"""Search in 8-bit integers with a built-in model: in Python, by the command and by the server's worker."""

import msgspec
import pytest
import torch

from regard import api, loading, torch_loading
from regard.config import SearchOptions
from regard.errors import ConfigError
from regard.run.finding import find_run
from regard.serve.worker_process import WorkerCommand, WorkerProcess
from tests.commands import regard

TEXTS = ["Wo ist der Bahnhof?", "Ein Hund läuft durch den Schnee.", "Ich habe keine Zeit.", "Das Wetter ist schön."]
OPTIONS = SearchOptions(beam=4)


@pytest.fixture(scope="module")
def best():
    """The best translations of float32 and of integers, with their scores."""
    translators = [loading.load("de-en", device="cpu", int8=int8) for int8 in (False, True)]
    return [[found[0] for found in translator.stream(iter(TEXTS), options=OPTIONS)] for translator in translators]


def test_integers_find_nearly_what_float32_finds(best):
    plain, rounded = best
    assert [one.score for one in rounded] == pytest.approx([one.score for one in plain], abs=0.1)
    assert [one.score for one in rounded] != [one.score for one in plain], "no integers were used"
    assert sum(one.text == other.text for one, other in zip(plain, rounded, strict=True)) >= 2


@pytest.mark.slow
def test_the_command_and_the_server_find_what_python_finds(best, tmp_path):
    expected = [one.text for one in best[1]]
    said = regard("translate", "de-en", "--int8", "--beam", "4", cwd=tmp_path, text="\n".join(TEXTS) + "\n")
    assert said.returncode == 0 and nearly(said.stdout.splitlines(), expected)
    found = answers_of_a_worker()
    assert nearly([found[number][0][0] for number in range(len(TEXTS))], expected)


def answers_of_a_worker():
    """What a worker process of the server finds: texts with their scores, by the index of the sentence."""
    command = WorkerCommand.for_runs([find_run("de-en").path], device="cpu", int8=True, threads=1)
    worker = WorkerProcess(command)
    task = {
        "id": 0,
        "kind": "translate",
        "model": 0,
        "sentences": TEXTS,
        "options": msgspec.structs.asdict(OPTIONS),
        "seconds": 60,
    }
    worker.send(task)
    found = {}
    while len(found) < len(TEXTS):
        message = worker.receive(60) or {}
        assert not message.get("end"), message
        found |= dict(message.get("ready", []))
    worker.close()
    return found


def nearly(texts, expected):
    """Whether all texts but one are equal: another number of threads may round a value to the next integer."""
    return sum(one == other for one, other in zip(texts, expected, strict=True)) >= len(expected) - 1


def test_integers_are_refused_where_they_are_not_supported(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="a PyTorch with oneDNN"):
        loading.load("de-en", device="cpu", int8=True, engine="torch")
    monkeypatch.setattr(torch_loading, "pick_device", lambda name: torch.device("cuda"))
    with pytest.raises(ConfigError, match="for a CPU, and this is cuda; leave out int8"):
        loading.load("de-en", int8=True, engine="torch")
    said = regard("translate", "de-en", "in.txt", "out", "--ray", "--int8", cwd=tmp_path)
    assert said.returncode == 2 and "--int8 cannot be combined with --ray" in said.stderr


def test_a_model_too_small_for_integers_gives_a_warning(copied):
    said = []
    loading.load(copied, device="cpu", int8=True, warn=said.append, engine="torch")
    assert said == ["no matrix of this model is so large that 8-bit integers are faster; it computes in float32"]


@pytest.fixture
def copied(tmp_path):
    small = ["model.width=16", "model.hidden=16", "train.steps=1", "train.validate_pairs=2", "train.checkpoint_every=1"]
    api.train("copy", out=tmp_path / "copy", overrides=small)
    return tmp_path / "copy"
