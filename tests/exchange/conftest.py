"""What tests of exports share."""

import json

import numpy as np
import pytest

from regard.exchange import engines, exporting, verifying
from regard.exchange.comparing import Theirs
from tests.exchange.marian_folders import WORDS, sentences


@pytest.fixture
def in_this_process(monkeypatch, tmp_path):
    """Ask engines here: importing them anew takes seconds. Other tests have processes that cannot import regard."""

    def ask(request):
        path = tmp_path / "answer.json"
        result = json.loads(json.dumps(engines.answer(vars(request), path)))
        logits = []
        if request.logits:
            with np.load(f"{path}.npz") as arrays:
                logits = [arrays[str(number)] for number in range(request.logits)]
        return Theirs(**result, logits=logits)

    monkeypatch.setattr(exporting, "ask_engine", ask)
    monkeypatch.setattr(verifying, "ask_engine", ask)


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(sentences(WORDS, 12, seed=5)) + "\n", encoding="utf-8")
    return path
