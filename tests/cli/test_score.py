"""regard score and regard calibrate."""

import json
import shutil
from pathlib import Path

import pytest

from tests.commands import regard as call

RUN = Path(__file__).parent.parent / "fixtures" / "run-0.1" / "transformer"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "s.txt").write_text("b c\n\nd e f\n")
    (tmp_path / "t.txt").write_text("c b\n\nf e d\n")
    return tmp_path


def printed(*arguments):
    result = call(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.slow
def test_scores_are_those_of_an_n_best_list(files):
    listed = [line.split(" ||| ") for line in printed("translate", RUN, files / "s.txt", "--nbest", "3", "--beam", "4")]
    sources = (files / "s.txt").read_text().splitlines()
    (files / "again.txt").write_text("".join(f"{sources[int(line)]}\n" for line, _, _ in listed))
    (files / "found.txt").write_text("".join(f"{text}\n" for _, text, _ in listed))
    scores = printed("score", RUN, "--source", files / "again.txt", "--target", files / "found.txt")
    assert [float(score) for score in scores] == pytest.approx([float(score) for _, _, score in listed], abs=2e-3)
    assert len(scores) >= 6


def test_one_line_is_printed_for_each_pair_also_for_an_empty_one(files):
    lines = printed("score", RUN, "--source", files / "s.txt", "--target", files / "t.txt", "--tokens")
    assert len(lines) == 3 and lines[1] == "0.0000"
    assert lines[0].split("\t")[1].startswith("c -") and lines[0].split("\t")[-1].startswith("</s> -")


@pytest.mark.slow
def test_a_calibrated_run_prints_confidence_as_json(files):
    run = shutil.copytree(RUN, files / "run")
    (files / "dev.tsv").write_text("b c\tc b\nd e f\tf e d\n")
    lines = printed("calibrate", run, "--pairs", files / "dev.tsv")
    assert lines[0].startswith("temperature ") and "expected calibration error" in lines[2]
    (first, *_) = printed("score", run, "--pairs", files / "dev.tsv", "--json", "--confidence")
    found = json.loads(first)
    assert (found["source"], found["text"]) == ("b c", "c b")
    assert [text for text, _ in found["words"]] == ["c", "b"] and 0.5 < found["confidence"] <= 1
    assert found["tokens"][-1][0] == "</s>"
    (first, *_) = printed("translate", run, files / "s.txt", "--json", "--confidence")
    assert json.loads(first).keys() == {"line", "text", "score", "tokens", "confidence", "words"}


@pytest.mark.slow
def test_contrastive_pairs_are_counted_by_category(files):
    (files / "c.tsv").write_text("source\tright\twrong\tcategory\nb c\tc b\tf e d a\tletters\nd e\te d\td e\tother\n")
    lines = printed("score", RUN, "--contrast", files / "c.tsv")
    assert [line.split()[0] for line in lines] == ["all", "letters", "other"] and "of 2 pairs" in lines[0]
    found = [json.loads(line) for line in printed("score", RUN, "--contrast", files / "c.tsv", "--json")]
    assert [one["correct"] == (one["scores"]["right"] > one["scores"]["wrong"]) for one in found] == [True, True]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "give --source and --target, or --pairs, or --contrast"),
        (["--source", "s.txt"], 2, "give --source and --target"),
        (["--source", "s.txt", "--target", "one.txt"], 1, "have different numbers of lines"),
        (["--source", "s.txt", "--target", "t.txt", "--confidence"], 2, "--confidence needs --json"),
        (["--source", "s.txt", "--target", "t.txt", "--confidence", "--json"], 1, "has not been calibrated"),
    ],
)
@pytest.mark.slow
def test_mistakes_are_explained(files, arguments, status, message):
    (files / "one.txt").write_text("c b\n")
    result = call("score", RUN, *(files / one if one.endswith(".txt") else one for one in arguments))
    assert result.returncode == status and message in " ".join(result.stderr.replace("│", " ").split())
