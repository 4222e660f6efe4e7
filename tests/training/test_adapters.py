"""Runs that train a part of a model: `train.freeze`, LoRA, biases."""

import os
import signal
import subprocess

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.config import TrainConfig
from regard.errors import CheckpointError, ConfigError
from regard.models import build_model
from regard.run.folder import RunFolder
from regard.training.adapters import LowRankAdapters, choose_parameters
from regard.training.events import Noted, Progress
from tests.commands import Forked

RECIPE = """
[data]
train.pairs = "pairs.tsv"
valid.hold_out = 4
[tokenizer]
kind = "word"
[model]
kind = "transformer"
width = 16
num_layers = 1
num_heads = 2
hidden = 24
dropout = 0.1
[train]
steps = 12
tokens = 64
checkpoint_every = 4
validate_pairs = 2
log_every = 1
optimizer = "adamw"
schedule = "inverse-sqrt"
lr = 0.01
warmup_steps = 2
threads = 1
device = "cpu"
"""
TABLE = {"kind": "transformer", "width": 16, "num_layers": 1, "num_heads": 2, "hidden": 24}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a recipe, its text, and a trained run, `base`."""
    folder = tmp_path_factory.mktemp("adapters")
    words = ["a", "b", "c", "d", "e", "f", "g", "h"]
    lines = [" ".join(words[(n * step) % 8] for n in range(1, 2 + step % 5)) for step in range(1, 41)]
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{' '.join(reversed(line.split()))}\n" for line in lines))
    (folder / "my.toml").write_text(RECIPE)
    train(folder, "base")
    return folder


def train(folder, out, *overrides, **options):
    events = []
    options.setdefault("listen", events.append)
    regard.train(str(folder / "my.toml"), out=folder / out, overrides=list(overrides), data=folder, **options)
    return events


def final(folder, out):
    return load_file(folder / out / "final" / "weights.safetensors")


def lora(folder, *more):
    return [f"train.init={folder / 'base'}", "train.adapt=lora", "train.lora_rank=2", *more]


def changed(folder, out):
    base = final(folder, "base")
    return {name for name, weight in final(folder, out).items() if not torch.equal(weight, base[name])}


def test_the_final_weights_are_those_of_a_plain_model_that_every_verb_loads(folder):
    notes = [event.text for event in train(folder, "plain", *lora(folder)) if isinstance(event, Noted)]
    found = changed(folder, "plain")
    assert found and all(name.endswith(".weight") and "norm" not in name for name in found)
    # Rank 2 of 16 x 16 (three times in `project`), 24 x 16 and 16 x 24 matrices: (16 + 16) * 2 and (16 + 24) * 2 numbers.
    attentions, feed_forwards = 3 * 4, 2 * 2
    trained = attentions * 64 + feed_forwards * 80
    size = sum(weight.numel() for weight in final(folder, "base").values())
    assert f"{trained:,} parameters are trained; the model has {size:,}" in notes
    assert final(folder, "plain").keys() == final(folder, "base").keys()
    regard.export(folder / "plain", folder / "exported", weights="float16")
    assert regard.load(folder / "exported").predict(["a b"]) == regard.load(folder / "plain").predict(["a b"])
    # A checkpoint, too, is a plain model.
    assert len(regard.load(folder / "plain" / "checkpoints" / "step-00000008").predict(["a b"])) == 1


@pytest.mark.slow(unless=["[]"])
@pytest.mark.parametrize("more", [[], ["train.ema=0.9", "train.accumulate=2"], ['train.freeze=["decoder"]']], ids=str)
def test_a_stopped_run_with_adapters_resumes_bit_for_bit(folder, tmp_path, more):
    train(folder, tmp_path / "whole", *lora(folder, *more))
    seen = []
    train(folder, tmp_path / "parts", *lora(folder, *more), listen=seen.append, stop=lambda: at_step(seen, 6))
    assert RunFolder(tmp_path / "parts").steps() == [4, 6]
    train(folder, tmp_path / "parts", *lora(folder, *more))
    whole, parts = final(tmp_path, "whole"), final(tmp_path, "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def at_step(events, step):
    return any(isinstance(event, Progress) and event.step >= step for event in events)


@pytest.mark.slow
def test_a_killed_run_with_adapters_resumes_bit_for_bit(folder, tmp_path):
    train(folder, tmp_path / "whole", *lora(folder))
    arguments = ["train", folder / "my.toml", "--out", tmp_path / "killed", "--data", folder, *lora(folder)]
    process = Forked(arguments, environment=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE)
    for line in process.stderr:
        if line.startswith("step 7/"):
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    assert not RunFolder(tmp_path / "killed").finished
    train(folder, tmp_path / "killed", *lora(folder))
    whole, killed = final(tmp_path, "whole"), final(tmp_path, "killed")
    assert all(torch.equal(whole[name], killed[name]) for name in whole)


def test_what_is_new_is_trained_in_full_also_after_resuming(folder, tmp_path):
    """A tagger takes the encoder of the translation model; its output layer is new."""
    (tmp_path / "tags.tsv").write_text("a b c\tX Y X\nb c\tY X\nd a b\tX X Y\n" * 3)
    options = [
        *('data.train={pairs="tags.tsv"}', "data.valid={hold_out=2}", "data.test={}", "train.init_partial=true"),
        *("model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=24", "model.feed_forward=relu"),
        *("train.steps=6", "train.checkpoint_every=2", "train.tokens=32", "train.device=cpu", "train.threads=1"),
        *("train.log_every=1", *lora(folder)),
    ]
    for stops in (True, False):
        seen = []
        stop = (lambda seen=seen: at_step(seen, 3)) if stops else lambda: False
        regard.train("runs", out=tmp_path / "run", overrides=options, data=tmp_path, listen=seen.append, stop=stop)
        checkpoint = RunFolder(tmp_path / "run").read_checkpoint(RunFolder(tmp_path / "run").latest()[0], training=True)
        optimized = {name.split("/")[1] for name in checkpoint.training if name.startswith("optimizer/")}
        new = set(RunFolder(tmp_path / "run").corpus()["init"]["new"].split())
        assert {"output.weight", "output.bias"} <= new <= optimized
        assert all(name.endswith((".up", ".down")) for name in optimized - new)
    assert RunFolder(tmp_path / "run").finished


def test_adapters_of_another_rank_do_not_fit_a_checkpoint():
    model = build_model(TABLE, source_size=9, target_size=9)
    name = "encoder.0.feed_forward.inner.weight"
    small, large = (LowRankAdapters(model, [name], rank=rank, alpha=1.0, seed=1) for rank in (2, 3))
    with pytest.raises(CheckpointError, match=r"'lora/encoder\.0\.feed_forward\.inner\.weight\.up' is missing or of"):
        large.restore(small.state(), origin="here")


def test_each_projection_has_an_adapter_of_its_own():
    """Queries, keys and values of width 8 are rows of one matrix. A change of one adapter changes its rows alone."""
    model = build_model({**TABLE, "width": 8}, source_size=9, target_size=9)
    adapters = choose_parameters(model, TrainConfig(init="base", adapt="lora", lora_rank=2))
    one = adapters.adapters["encoder.0.attention.project.weight"]
    assert one.up.shape == (24, 2) and one.down.shape == (6, 8) and one.heights == [8, 8, 8]
    with torch.no_grad():
        one.up.fill_(1.0)
        one.down.zero_()[2:4] = 1.0  # of the keys
    adapters.merge()
    change = one.weight.detach() - one.base
    # alpha / rank = 16 / 2, and 1 · 1 twice
    torch.testing.assert_close(change[8:16], torch.full((8, 8), 16.0))
    assert not change[:8].any() and not change[16:].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"freeze": ("encodr",)},
            r"has 'encodr', which no parameter of this model begins with; did you mean 'encoder'",
        ),
        ({"freeze": ("source",)}, r"known: decoder, encoder, target_embedding$"),
        ({"freeze": ("decoder.7",)}, r"begins with; did you mean 'decoder'\?"),
        ({"freeze": ("encoder", "decoder", "target_embedding")}, r"names every parameter of this model"),
        (
            {"freeze": ("encoder", "decoder"), "adapt": "lora", "init": "base"},
            r"train\.adapt is lora, but no matrices of layers of this model are left to train; use adapt=none",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_trained_is_refused(options, message):
    model = build_model(TABLE, source_size=9, target_size=9)
    with pytest.raises(ConfigError, match=message):
        choose_parameters(model, TrainConfig(**options))


def test_adapters_need_a_run_to_begin_with_and_an_optimizer_for_them(folder):
    with pytest.raises(ConfigError, match=r"adapt is lora, which trains a part of a model that init names"):
        train(folder, "refused", "train.adapt=lora")
    with pytest.raises(ConfigError, match=r"muon is for complete matrices, not for adapters"):
        train(folder, "refused", *lora(folder, "train.optimizer=muon"))
    assert not (folder / "refused").exists()
