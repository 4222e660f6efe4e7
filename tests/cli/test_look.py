"""regard look prints what it is doing."""

from typer.testing import CliRunner

from regard.cli import app


def test_look_says_what_it_does_before_it_has_done_it(tmp_path):
    out = tmp_path / "look.html"
    found = CliRunner().invoke(
        app, ["look", "en-de", "Where is the station?", "--out", str(out), "--alternatives", "1"]
    )
    assert found.exit_code == 0 and found.stdout == "Wo ist der Bahnhof?\n"
    said = found.stderr.splitlines()
    assert said[:2] == ["loading en-de ...", "translating 5 tokens ..."]
    assert said[2].startswith("translating with each of ") and said[-1] == f"wrote {out}"
