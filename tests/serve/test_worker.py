"""A process that translates, as the server sees it: what it says, and what happens when it dies."""

import json
import sys
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
        super().__init__({"de-en": "somewhere"}, device="cpu", int8=False, threads=1)

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


def test_one_that_dies_with_its_last_word_said_needs_no_successor():
    worker = Mortal([[ready((0, "A"))]])
    assert len(list(worker.translate("de-en", ["a"], OPTIONS))) == 1 and worker.asked == [["a"]]


SPEAKS = """
import json, sys
for line in sys.stdin:
    for number, text in enumerate(json.loads(line)["sentences"]):
        print(json.dumps({"ready": [[number, [[text.upper(), 0.0]]]]}), flush=True)
        if text == "die":
            print('{"ready": [[1, [["hal', end="", flush=True)
            sys.exit(1)
    print("null", flush=True)
"""


class Real(Worker):
    """A worker whose process is a real one, that shouts, and dies when told to."""

    def _start(self):
        self.command = [sys.executable, "-c", SPEAKS]
        return super()._start()


def texts(answers):
    return [(number, best[0].text) for some in answers for number, best in some]


def test_who_stops_listening_leaves_nothing_behind_for_the_next():
    worker = Real({"de-en": "somewhere"}, device="cpu", int8=False, threads=1)
    answers = worker.translate("de-en", ["one", "two"], OPTIONS)
    next(answers)
    answers.close()
    assert texts(worker.translate("de-en", ["alpha", "beta"], OPTIONS)) == [(0, "ALPHA"), (1, "BETA")]
    worker.close()


def test_half_a_line_is_no_answer():
    worker = Real({"de-en": "somewhere"}, device="cpu", int8=False, threads=1)
    assert texts(worker.translate("de-en", ["die", "go on"], OPTIONS)) == [(0, "DIE"), (1, "GO ON")]
    worker.close()


def test_an_error_is_told_and_the_worker_goes_on():
    worker = Mortal([[{"error": "DataError: too long"}], [ready((0, "A")), None]])
    with pytest.raises(RuntimeError, match="DataError: too long"):
        list(worker.translate("de-en", ["a"], OPTIONS))
    assert len(list(worker.translate("de-en", ["a"], OPTIONS))) == 1
