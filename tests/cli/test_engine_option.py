"""evaluate, score and look have --engine, as translate and serve do."""

from pathlib import Path

import pytest

from regard import loading
from regard.cli.commands import app
from tests.commands import regard as call
from tests.engine_models import needs_engine

RUNS = Path(__file__).parent.parent / "fixtures" / "run-0.1"
COMMANDS = {
    "evaluate": ["--source", "de", "--reference", "en"],
    "score": ["--source", "de", "--target", "en"],
    "look": ["b c", "--out", "page.html"],
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    (tmp_path / "de").write_text("b c\n")
    (tmp_path / "en").write_text("c b\n")
    monkeypatch.chdir(tmp_path)


@needs_engine
@pytest.mark.parametrize("command", COMMANDS)
def test_what_computes_can_be_chosen(command, files, monkeypatch, capsys):
    plain, backends, printed = loading._predictor, [], []

    def recorded(*arguments, **options):
        predictor = plain(*arguments, **options)
        backends.append(type(predictor.backend).__name__)
        return predictor

    monkeypatch.setattr(loading, "_predictor", recorded)
    for engine in ([], ["--engine", "engine"], ["--engine", "torch"]):
        app([command, str(RUNS / "transformer"), *COMMANDS[command], "--device", "cpu", *engine], standalone_mode=False)
        printed.append(capsys.readouterr().out)
    assert backends == ["EngineBackend", "EngineBackend", "TorchBackend"]
    assert printed[0] == printed[1] == printed[2] != ""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_that_the_engine_does_not_have_is_refused(command, files):
    result = call(command, RUNS / "rnn", *COMMANDS[command], "--device", "cpu", "--engine", "engine")
    assert result.returncode == 1 and "the engine" in result.stderr and "Traceback" not in result.stderr
