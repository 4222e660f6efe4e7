"""Exports are used in virtual environments that have the engine and no regard, by the programs of docs/export.md."""

from pathlib import Path

import pytest

import regard
from regard.exchange.certificate import CERTIFICATE, PAGE
from regard.exchange.exporting import export_model
from tests.exchange.engine_environments import make_environment, run
from tests.test_docs import ROOT, blocks

LINES = [
    "Wo ist der Bahnhof?",
    "Das Wetter ist heute schön, aber morgen soll es regnen.",
    "Ich habe gestern mit meiner Schwester telefoniert.",
    "Kannst du mir bitte das Salz reichen?",
    "Er liest ein Buch über Astronomie 🚀.",
]
# By engine: the folder that the page names, and what is installed.
ENGINES = {
    "ctranslate2": ("de-en-ct2", ["ctranslate2", "sentencepiece"]),
    "huggingface": ("de-en-hf", ["transformers", "torch", "sentencepiece"]),
    "onnx": ("de-en-onnx", ["onnxruntime", "numpy", "sentencepiece"]),
}


def program(engine, folder):
    """Return the arguments of Python that run the program of an engine."""
    if engine == "onnx":
        return [f"{folder}/translate.py"]
    [text] = [text for _, text in blocks(ROOT / "docs" / "export.md") if "import sys" in text and f'"{folder}"' in text]
    return ["-c", text]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_an_export_translates_as_we_do_in_an_environment_without_regard(engine, tmp_path):
    folder, distributions = ENGINES[engine]
    python = make_environment(tmp_path / "environment", *distributions)
    missing = run(python, "-c", "import regard")
    assert missing.returncode == 1 and "ModuleNotFoundError: No module named 'regard'" in missing.stderr
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    # The certificate, too, is of a process that cannot import regard.
    certificate = export_model("de-en", tmp_path / folder, to=engine, lines=lines)
    assert certificate.measured.identical == 1.0
    page = (tmp_path / folder / "certificate.md").read_text(encoding="utf-8")
    assert "| identical greedy translations | 100.0% |" in page and "## Files" in page
    assert set(certificate.files) == {one.name for one in (tmp_path / folder).iterdir()} - {CERTIFICATE, PAGE}
    done = run(python, *program(engine, folder), cwd=tmp_path, input=lines.read_text(encoding="utf-8"))
    assert done.returncode == 0, done.stderr
    # Protected spans are a step before and after the model, which engines do not have.
    options = regard.SearchOptions(beam=1, protect=False)
    ours = regard.load("de-en", device="cpu").translate(LINES, options=options)
    assert len(set(ours)) == len(LINES)
    assert done.stdout.splitlines() == ours


@pytest.mark.slow
def test_an_environment_has_what_was_asked_for_and_nothing_else(tmp_path):
    python = make_environment(tmp_path / "environment", "sentencepiece")
    code = "import sentencepiece, sys; print(sentencepiece.__file__); print(*sys.path, sep='\\n'); import numpy"
    done = run(python, "-c", code)
    assert "No module named 'numpy'" in done.stderr
    place, *path = done.stdout.splitlines()
    assert Path(place).is_relative_to(tmp_path)
    assert not [one for one in path if "site-packages" in one and not Path(one).is_relative_to(tmp_path)]
