"""The options that choose a language: --to, --pivot and --tag."""

import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app


def command(*words):
    return CliRunner().invoke(app, list(words))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of three target languages with a tag that has learnt nothing; its outputs are random, and depend on tags."""
    entries = [
        "{generate='copy/valid', languages=['en', 'de'], tag='<bt>'}",
        "{generate='copy/valid', languages=['en', 'fr']}",
        "{generate='copy/valid', languages=['fr', 'en']}",
    ]
    overrides = [
        *(f"data.train=[{', '.join(entries)}]", f"data.valid={entries[1]}", f"data.test.french={entries[1]}"),
        f"data.test.test={entries[2]}",
        *("model.width=16", "model.num_layers=1", "model.hidden=16", "train.threads=1", "train.validate_pairs=1"),
        *("train.steps=1", "train.lr=0", "train.warmup_steps=0", "decode.max_extra=0"),
    ]
    out = tmp_path_factory.mktemp("runs") / "many"
    return regard.train("copy", out=out, overrides=overrides, listen=lambda event: None).run.path


def test_translate_takes_a_language_a_pivot_and_a_tag(run, tmp_path):
    translator = regard.load(run, device="cpu")
    text, file = "c a d b e f a b", tmp_path / "lines.txt"
    file.write_text(f"{text}\n")
    outputs = []
    for options, chosen in [
        (["--to", "fr"], translator.into("fr")),
        (["--to", "de", "--tag", "<bt>"], translator.into("de", tag="<bt>")),
        (["--to", "de", "--pivot", "en"], translator.into("de", pivot="en")),
    ]:
        outputs.append(command("translate", str(run), str(file), *options).stdout)
        assert outputs[-1] == f"{chosen.translate([text])[0]}\n"
    assert len(set(outputs)) > 1


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("many", [], "this model translates into de, fr, en; say into which, as in --to de or, in Python, to='de'"),
        ("many", ["--to", "it"], "this model does not translate into 'it'; known: de, en, fr"),
        (
            "many",
            ["--to", "fr", "--tag", "<x>"],
            "the tag '<x>' is unknown; this model was trained with the tags <2de>, ",
        ),
        (
            "de-en",
            ["--to", "en"],
            "the recipe of this model names no languages, so 'en' cannot be chosen; leave it out",
        ),
    ],
)
def test_errors_name_the_languages(run, model, options, message):
    done = command("translate", str(run) if model == "many" else model, *options)
    assert done.exit_code == 1 and str(done.exception).startswith(message)


def test_evaluate_and_look_take_a_language(run, tmp_path):
    both, french = (command("evaluate", str(run), *options) for options in ([], ["--to", "fr"]))
    assert "french (" in both.stdout and "test (" in both.stdout
    assert "french (" in french.stdout and "test (" not in french.stdout
    looked = command("look", str(run), "c a d b", "--to", "fr", "--out", str(tmp_path / "look.html"))
    assert looked.stdout.strip() == regard.load(run, device="cpu").translate(["c a d b"], to="fr")[0].strip()
    assert "2fr" in (tmp_path / "look.html").read_text()
