"""regard look prints what it is doing."""

import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.messages import RegardWarning


def test_look_says_what_it_does_before_it_has_done_it(tmp_path):
    out = tmp_path / "look.html"
    found = CliRunner().invoke(
        app, ["look", "en-de", "Where is the station?", "--out", str(out), "--alternatives", "1"]
    )
    assert found.exit_code == 0 and found.stdout == "Wo ist der Bahnhof?\n"
    said = found.stderr.splitlines()
    assert said[:2] == ["loading en-de ...", "translating 5 tokens ..."]
    assert said[2].startswith("translating with each of ") and said[-1] == f"wrote {out}"


def test_look_warns_of_what_the_model_does_not_know_as_translate_does(tmp_path):
    arguments = ["look", "en-de", "我爱你", "--out", str(tmp_path / "look.html"), "--beam", "1", "--alternatives", "0"]
    sentence = "the text has characters that the model does not know (你 我 爱); its translation may be wrong"
    assert f"warning: {sentence}" in CliRunner().invoke(app, arguments).stderr.splitlines()
    with pytest.warns(RegardWarning, match="the text has characters that the model does not know"):
        regard.look("en-de", "我爱你", beam=1, alternatives=0)
    heard = []
    regard.look("en-de", "See 😀 and https://example.org/我爱你", beam=1, alternatives=0, warn=heard.append)
    assert heard == []
