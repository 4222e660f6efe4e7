"""Search in 8-bit integers with a built-in model: in Python, by the command and by the server's worker."""

import msgspec
import pytest

from regard import loading
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
    found = answers_of_a_worker(int8=True)
    assert nearly([found[number][0][0] for number in range(len(TEXTS))], expected)


@pytest.mark.slow
def test_the_server_multiplies_integers_unless_it_is_told_not_to():
    scores = {int8: answers_of_a_worker(int8=int8)[0][0][1] for int8 in (None, True, False)}
    assert scores[None] == scores[True] != scores[False]
    in_torch = answers_of_a_worker(int8=None, engine="torch")[0][0][1]
    assert in_torch == pytest.approx(scores[False], abs=1e-4)


def answers_of_a_worker(*, int8, engine="auto"):
    """What a worker process of the server finds: texts with their scores, by the index of the sentence."""
    command = WorkerCommand.for_runs([find_run("de-en").path], device="cpu", int8=int8, threads=1, engine=engine)
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


def test_integers_are_refused_where_the_engine_does_not_compute(tmp_path):
    with pytest.raises(
        ConfigError, match="the engine computes 8-bit integers, and not for de-en: PyTorch was asked for"
    ):
        loading.load("de-en", device="cpu", int8=True, engine="torch")
    said = regard("translate", "de-en", "in.txt", "out", "--ray", "--int8", cwd=tmp_path)
    assert said.returncode == 2 and "--int8 cannot be combined with --ray" in said.stderr
