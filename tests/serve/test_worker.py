"""A process that translates, as the server sees it: what it says, and what happens when it dies."""

import json
from types import SimpleNamespace

import pytest

from regard.decoding.hypotheses import SearchOptions
from regard.decoding.translator import Translation
from regard.serve.worker import Worker, WorkerEnded

OPTIONS = SearchOptions(beam=1)


class Mortal(Worker):
    """A worker whose process says what it is told to, and ends; then the next one is started."""

    def __init__(self, lives):
        self.lives, self.asked = iter(lives), []
        super().__init__({"de-en": "somewhere"}, device="cpu", threads=1)

    def _start(self):
        return SimpleNamespace(kill=lambda: None, wait=lambda: None)

    def _ask(self, message):
        self.asked.append(json.loads(message)["sentences"])
        yield from map(json.dumps, next(self.lives))


def ready(*sentences):
    return {"ready": [[number, [[text, -1.0]]] for number, text in sentences]}


def test_what_is_ready_comes_at_once():
    worker = Mortal([[ready((1, "B")), ready((0, "A"), (2, "C")), None]])
    answers = worker.translate("de-en", ["a", "b", "c"], OPTIONS)
    assert next(answers) == [(1, [Translation("B", -1.0)])]
    assert next(answers) == [(0, [Translation("A", -1.0)]), (2, [Translation("C", -1.0)])]
    assert next(answers, "the end") == "the end"


def test_a_successor_is_asked_for_what_is_missing():
    worker = Mortal([[ready((1, "B"))], [ready((1, "C"), (0, "A")), None]])
    answers = [one for some in worker.translate("de-en", ["a", "b", "c"], OPTIONS) for one in some]
    assert worker.asked == [["a", "b", "c"], ["a", "c"]]
    assert {number: best[0].text for number, best in answers} == {0: "A", 1: "B", 2: "C"} and len(answers) == 3


def test_one_whose_successor_dies_too_says_so():
    worker = Mortal([[ready((0, "A"))], []])
    answers = worker.translate("de-en", ["a", "b"], OPTIONS)
    assert next(answers) == [(0, [Translation("A", -1.0)])]
    with pytest.raises(WorkerEnded):
        next(answers)


def test_an_error_is_told_and_the_worker_goes_on():
    worker = Mortal([[{"error": "DataError: too long"}], [ready((0, "A")), None]])
    with pytest.raises(RuntimeError, match="DataError: too long"):
        list(worker.translate("de-en", ["a"], OPTIONS))
    assert len(list(worker.translate("de-en", ["a"], OPTIONS))) == 1
