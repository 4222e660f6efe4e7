"""`regard export --to`, `regard verify` and `regard import` as commands."""

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.errors import CheckpointError, ConfigError
from regard.exchange.certificate import BOUNDS, load_certificate
from regard.storage.folder import Folder
from tests.exchange.tiny_runs import make_run


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_an_export_is_verified_and_imported_again(tmp_path, lines, in_this_process):
    pytest.importorskip("ctranslate2")
    run, out = make_run(tmp_path / "run"), tmp_path / "out"
    exported = command("export", run, "--to", "ctranslate2", "--lines", lines, "--out", out)
    assert exported.exit_code == 0 and f"{out}: certified" in exported.stderr
    assert "identical greedy translations                      100.0%   (bound at least 98%)" in exported.stderr
    verified = command("verify", out)
    assert verified.exit_code == 0 and "and ctranslate2 agrees with us" in verified.stderr
    imported = command("import", out, "--out", tmp_path / "again")
    assert imported.exit_code == 0 and f"{tmp_path / 'again'}: use it like any run" in imported.stderr
    options = ("--beam", "1", "--max-extra", "6")
    text = [command("translate", one, lines, *options).stdout for one in (run, tmp_path / "again")]
    assert text[0] == text[1] and text[0].count("\n") == 12

    (out / "target.spm").write_bytes(b"damaged")
    damaged = command("verify", out)
    assert damaged.exit_code == 1 and isinstance(damaged.exception, CheckpointError)


def test_the_share_of_identical_translations_is_chosen_and_certified(tmp_path, lines, in_this_process):
    pytest.importorskip("ctranslate2")
    options = ["export", make_run(tmp_path / "run"), "--to", "ctranslate2", "--lines", lines]
    chosen = command(*options, "--identical", "0.5", "--out", tmp_path / "out")
    assert chosen.exit_code == 0, chosen.output
    bounds = load_certificate(Folder(tmp_path / "out")).bounds
    assert bounds.identical == 0.5 and bounds.score == BOUNDS["float32"].score


def test_options_of_certificates_need_an_engine(tmp_path):
    for option in (["--data", "."], ["--lines", "lines.txt"], ["--identical", "0.5"]):
        done = command("export", "de-en", "--out", tmp_path / "out", *option)
        assert done.exit_code == 2 and "--data, --lines and --identical are for" in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


def test_what_is_no_model_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "readme.txt").write_text("nothing")
    done = command("import", tmp_path)
    assert done.exit_code == 1 and isinstance(done.exception, ConfigError)
    assert "holds no model of a known format" in str(done.exception)
