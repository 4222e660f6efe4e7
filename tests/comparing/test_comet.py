"""COMET, with a stand-in for its package: neither it nor a checkpoint is here, so no real score has been computed.

The stand-in has the two functions that are called, as the documentation of unbabel-comet 2 describes them.
"""

import sys
from types import SimpleNamespace

import pytest

import regard
from regard.errors import CheckpointError, ConfigError, MissingExtra

FEW = {"resamples": 40, "trials": 50}


class StandIn:
    """Scores a translation by the share of its words that the reference has; remembers what it was asked."""

    def __init__(self):
        self.loaded, self.calls = [], []

    def load_from_checkpoint(self, path):
        if "damaged" in path:
            raise Exception("hparams.yaml file is missing!")
        self.loaded.append(path)
        return self

    def predict(self, samples, batch_size, gpus, progress_bar):
        self.calls.append(samples)
        assert gpus == 0 and progress_bar is False and batch_size > 0
        scores = [
            sum(word in one["ref"].split() for word in one["mt"].split()) / len(one["mt"].split()) for one in samples
        ]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))


@pytest.fixture
def stand_in(monkeypatch):
    made = StandIn()
    monkeypatch.setitem(sys.modules, "comet", made)
    return made


@pytest.fixture
def files(tmp_path):
    texts = {"ref": "a b\nc d\n", "ref2": "x x\nx x\n", "src": "A B\nC D\n", "one": "a x\nc x\n", "two": "a b\nc x\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "wmt" / "checkpoints").mkdir(parents=True)
    (tmp_path / "wmt" / "checkpoints" / "model.ckpt").write_bytes(b"not read here")
    return tmp_path


def compare(files, **options):
    given = {"reference": [files / "ref", files / "ref2"], "source": files / "src", "device": "cpu", **FEW, **options}
    return regard.compare(files / "one", files / "two", **given)


def test_the_score_of_a_system_is_the_mean_of_its_sentences(files, stand_in):
    checkpoint = files / "wmt" / "checkpoints" / "model.ckpt"
    [compared] = compare(files, comet=checkpoint).sets
    assert [one.metric for one in compared.metrics] == ["exact match", "chrF", "TER", "COMET"]
    comet = compared.metrics[3]
    assert [one.score for one in comet.systems] == [0.5, 0.75] and comet.higher_is_better
    # An exchange gives a difference of 0.25 or -0.25: none is larger.
    assert comet.systems[1].paired.change == 0.25 and comet.systems[1].paired.p_randomization == 1 / 51
    assert comet.signature == "nrefs:1|model:wmt/checkpoints/model.ckpt|bs:40|ar:50|seed:12345"
    assert stand_in.loaded == [str(checkpoint)]


def test_it_gets_the_source_the_output_and_the_first_reference(files, stand_in):
    compare(files, comet=files / "wmt" / "checkpoints" / "model.ckpt")
    assert [call[0] for call in stand_in.calls] == [
        {"src": "A B", "mt": "a x", "ref": "a b"},
        {"src": "A B", "mt": "a b", "ref": "a b"},
    ]


def test_without_sources_it_is_refused(files, stand_in):
    with pytest.raises(ConfigError, match="COMET reads the sources too; give them with --source"):
        compare(files, source=None, comet=files / "wmt" / "checkpoints" / "model.ckpt")
    assert not stand_in.calls


def test_a_checkpoint_that_cannot_be_loaded_is_named(files, stand_in):
    (files / "damaged.ckpt").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"damaged\.ckpt cannot be loaded by the package 'comet': hparams"):
        compare(files, comet=files / "damaged.ckpt")


def test_a_missing_package_is_a_sentence_with_the_command_that_installs_it(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(MissingExtra, match=r"--comet needs the package 'comet': .*pip install unbabel-comet"):
        compare(files, comet=files / "wmt" / "checkpoints" / "model.ckpt")
