"""Distillation of a corpus, and a teacher as rescorer of candidates."""

import json

import pytest

import regard
from regard.config import SearchOptions
from regard.decoding.translator import Translation
from regard.distilling import closest_to_reference, distill
from regard.errors import ConfigError
from regard.run.log import log_line

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    run = tmp_path_factory.mktemp("teacher") / "run"
    shape = ["model.width=32", "model.num_layers=1", "model.num_heads=2", "model.hidden=64"]
    steps = ["train.steps=100", "train.tokens=512", "train.threads=1", "train.validate_pairs=1"]
    regard.train("copy", out=run, overrides=[*shape, *steps])
    return run


@pytest.fixture
def files(tmp_path):
    lines = {"a.txt": "a b c\nc a\nd e\nb\n", "b.txt": "a b c\nc a\nd e\nb\n"}
    for name, text in lines.items():
        (tmp_path / name).write_text(text)
    return {"source": tmp_path / "a.txt", "reference": tmp_path / "b.txt"}


def test_a_corpus_has_one_target_line_per_source_line_and_a_card(teacher, files, tmp_path):
    folder = distill(teacher, tmp_path / "out", **files)
    source, target = ((folder / name).read_text().split("\n") for name in ("source.txt", "target.txt"))
    translator = regard.load(teacher)
    assert target[:-1] == translator.translate(source[:-1])
    card = json.loads((folder / "card.json").read_text())
    assert card["teacher"] == "copy" and card["done"] and card["text"]["pairs"] == len(source) - 1
    assert "best of the beam" in (folder / "card.md").read_text()


def test_a_resumed_corpus_keeps_intact_lines_and_drops_an_incomplete_one(teacher, files, tmp_path):
    folder = distill(teacher, tmp_path / "out", **files)
    complete = (folder / "target.txt").read_bytes()
    first = complete.index(b"\n") + 1
    (folder / "target.jsonl.part").write_text(log_line({"text": "kept as it is"}) + log_line({"text": "half"})[:-9])
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps({**card, "done": False}))
    reported = []
    distill(teacher, tmp_path / "out", **files, progress=lambda done, total: reported.append(done))
    assert (folder / "target.txt").read_bytes() == b"kept as it is\n" + complete[first:]
    assert reported[0] == 1
    reported.clear()
    distill(teacher, tmp_path / "out", **files, progress=lambda done, total: reported.append(done))
    assert not reported


def test_a_folder_with_another_corpus_is_refused(teacher, files, tmp_path):
    distill(teacher, tmp_path / "out", **files)
    with pytest.raises(ConfigError, match=r"started with other settings \(beam: \d -> 2\)"):
        distill(teacher, tmp_path / "out", **files, beam=2)
    files["source"].write_text("a b c\nc a\nd e\nc\n")  # the same number of lines
    with pytest.raises(ConfigError, match=r"started with other settings \(text\)"):
        distill(teacher, tmp_path / "out", **files)


def test_a_folder_with_other_files_is_refused_and_left_alone(teacher, files, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "target.txt").write_text("mine\n")
    for place in (theirs, files["source"]):
        with pytest.raises(ConfigError, match="choose another folder"):
            distill(teacher, place, **files)
    assert (theirs / "target.txt").read_text() == "mine\n"


def test_a_blank_translation_is_replaced_by_the_reference(teacher, files, tmp_path, monkeypatch):
    blank = [[Translation(" ", 0.0)], [Translation("c a", 0.0)], [Translation("d e", 0.0)], [Translation("", 0.0)]]
    monkeypatch.setattr("regard.decoding.translator.Translator.stream", lambda self, texts, **keys: iter(blank))
    folder = distill(teacher, tmp_path / "out", **files)
    assert (folder / "target.txt").read_text() == "a b c\nc a\nd e\nb\n"
    assert json.loads((folder / "card.json").read_text())["blank_translations_replaced_by_the_reference"] == 2


def test_the_hypothesis_closest_to_the_reference_is_found():
    found = [Translation(text, 0.0) for text in ("the cat", "a dog sat on a mat", "the dog sat")]
    assert closest_to_reference("a dog sat on the mat", found) == "a dog sat on a mat"


def test_the_rescorer_scores_as_search_does_and_puts_the_best_first(teacher):
    rescored = regard.load(teacher, rescorer=teacher)
    options = SearchOptions(beam=3, nbest=3, length_penalty=0.6)
    texts = ["a b c", "d", "e f g h"]
    alone = list(regard.load(teacher).stream(texts, options=options))
    for ours, plain in zip(rescored.stream(texts, options=options), alone, strict=True):
        assert [one.score for one in ours] == sorted((one.score for one in ours), reverse=True)
        best = next(one for one in ours if one.text == plain[0].text)
        assert best.score == pytest.approx(plain[0].score, abs=0.01)


def test_the_rescorer_respects_its_maximum_length(teacher):
    rescored = regard.load(teacher, rescorer=teacher)
    rescored.rescorer.model.max_length = 4
    [found] = rescored.stream(["a b c d e f g h"], options=SearchOptions(beam=2))
    assert found[0].score < 0


def test_a_non_autoregressive_model_cannot_rescore(teacher, tmp_path):
    shape = ["model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=16"]
    steps = ["train.steps=2", "train.threads=1", "train.validate_pairs=1"]
    regard.train("copy", out=tmp_path / "ctc", overrides=["model.kind=ctc", *shape, *steps])
    with pytest.raises(ConfigError, match="only a model that outputs token by token can rescore"):
        regard.load(teacher, rescorer=tmp_path / "ctc")
