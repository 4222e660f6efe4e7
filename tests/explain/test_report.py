"""Reports show what the log says, during training and after it."""

import json
import re

import pytest

import regard
from regard.cli import app
from regard.explain.page_assets import asset
from regard.explain.report import as_report, summarize
from regard.metrics import METRICS
from regard.run.folder import RunFolder
from tests.browser import Watched, expect, serious_findings

SMALL = [
    *("model.width=16", "model.num_layers=1", "model.hidden=16", "model.num_heads=2", "train.tokens=256"),
    *("train.validate_every=10", "train.checkpoint_every=20", "train.log_every=2", "train.validate_pairs=20"),
    *("train.threads=1", "train.device=cpu"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "one"
    regard.train("reverse", out=path, overrides=[*SMALL, "train.steps=40"])
    return RunFolder(path)


def runs_of(page):
    (found,) = re.findall(r'<script type="application/json" id="runs">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(found)


def test_every_number_is_the_one_in_the_log(run):
    (shown,) = runs_of((run.path / "report.html").read_text(encoding="utf-8"))
    log = run.read_log()
    progress = [event for event in log if event["event"] == "progress"]
    for key in ("loss", "rate", "gradient_norm", "tokens_per_second"):
        assert shown["curves"][key] == [[event["step"], event["seconds"], event[key]] for event in progress]
    validated = [event for event in log if event["event"] == "validated"]
    assert [one["step"] for one in shown["validations"]] == [10, 20, 30, 40]
    for one, event in zip(shown["validations"], validated, strict=True):
        assert one["scores"] == {key: event[key] for key in ("loss", "bleu", "chrf", "exact", "token_errors")}
        assert one["examples"] == event["examples"]
    assert shown["step"] == 40 and shown["seconds"] == progress[-1]["seconds"] and shown["finished"]


def test_histograms_count_every_dev_sentence(run):
    for one in summarize(run)["validations"]:
        assert sum(one["histograms"]["length"]) == sum(one["histograms"]["right"]) == 20


def test_attention_of_an_example_is_kept_over_training(run):
    for one in summarize(run)["validations"]:
        seen, example = one["attention"], one["examples"][0]
        assert seen["source"] == [*example["source"].split(), "</s>"]
        assert len(seen["percent"]) == len(seen["target"])
        assert all(sum(row) == pytest.approx(100, abs=len(row)) for row in seen["percent"])


def test_a_report_is_written_during_training_and_reloads_itself(tmp_path):
    path, pages = tmp_path / "run", []

    def read(event):
        if type(event).__name__ == "Validated":
            pages.append((path / "report.html").read_text(encoding="utf-8"))

    regard.train("reverse", out=path, overrides=[*SMALL, "train.steps=30"], listen=read)
    assert [len(runs_of(page)[0]["validations"]) for page in pages] == [1, 2, 3]
    assert all('http-equiv="refresh"' in page for page in pages)
    assert 'http-equiv="refresh"' not in (path / "report.html").read_text(encoding="utf-8")


def test_several_runs_are_shown_side_by_side(run, tmp_path):
    from typer.testing import CliRunner

    out = tmp_path / "both.html"
    assert CliRunner().invoke(app, ["report", str(run), str(run), "--out", str(out)]).exit_code == 0
    assert [one["name"] for one in runs_of(out.read_text(encoding="utf-8"))] == ["one", "one"]


def test_settings_of_one_side_are_compared_with_the_resolved_ones_of_other_runs(run, tmp_path):
    apart = ["tokenizer.joint=false", "tokenizer.source.kind=char", "model.tie=none"]
    path = tmp_path / "two"
    regard.train("reverse", out=path, overrides=[*SMALL, *apart, "train.steps=1"], listen=lambda event: None)
    one, two = runs_of(as_report([run, RunFolder(path)]))
    kinds = [{key: value for key, value in found["settings"].items() if ".kind" in key} for found in (one, two)]
    assert kinds[0] == {"model.kind": "transformer", "tokenizer.source.kind": "word", "tokenizer.target.kind": "word"}
    assert kinds[1] == {"model.kind": "transformer", "tokenizer.source.kind": "char", "tokenizer.target.kind": "word"}
    (alone,) = runs_of(as_report([run]))
    assert alone["settings"]["tokenizer.kind"] == "word" and "tokenizer.source.kind" not in alone["settings"]


def test_text_in_a_report_is_never_markup(run, monkeypatch):
    log = run.read_log()
    for event in log:
        for example in event.get("examples", []):
            example["output"] = "</script><script>alert(1)</script>"
    monkeypatch.setattr(RunFolder, "read_log", lambda self: log)
    page = as_report([run])
    assert "<script>alert" not in page
    assert runs_of(page)[0]["validations"][0]["examples"][0]["output"].startswith("</script>")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_in_a_browser_and_is_accessible(browser, run, scheme):
    watched = Watched(browser, color_scheme=scheme)
    watched.page.goto((run.path / "report.html").as_uri())
    expect(watched.page.locator(".chart").first).to_be_visible()
    assert watched.page.locator(".chart svg").count() >= 9
    assert watched.complaints == []
    assert serious_findings(watched.page) == []


def test_scores_have_the_labels_of_their_metrics():
    (found,) = re.findall(r"const LABELS = (\{.*?\});", asset("curves.js"))
    labels = json.loads(re.sub(r"(\w+):", r'"\1":', found))
    assert labels == {name: METRICS.get(name, where="metric").label for name in ("bleu", "chrf", "exact")}
