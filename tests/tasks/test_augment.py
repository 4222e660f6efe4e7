"""Training with noise in the text (`data.augment`), and what a model with placeholders does with protected spans."""

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.errors import ConfigError
from regard.loading import load_translator
from regard.recipe_files import load_recipe
from regard.tasks import task_of
from regard.tasks.recipe_checks import resolve
from regard.text.augment import augmented
from regard.text.protected_spans import placeholder_ids
from regard.training import trainer
from regard.training.events import Progress

RECIPE = """
[data]
train = { pairs = "pairs.tsv" }
valid = { hold_out = 4 }
[data.augment]
placeholders = 0.5
typos = 0.2
lower = 0.2
[tokenizer]
kind = "bpe"
size = 120
[model]
kind = "transformer"
width = 16
num_layers = 1
num_heads = 2
hidden = 16
[train]
steps = 8
tokens = 512
threads = 1
device = "cpu"
log_every = 1
checkpoint_every = 100
validate_every = 100
"""


@pytest.fixture
def folder(tmp_path):
    rows = [f"Tom has {number} dogs.\tTom hat {number} Hunde.\n" for number in range(64)]
    (tmp_path / "pairs.tsv").write_text("".join(rows))
    (tmp_path / "my.toml").write_text(RECIPE)
    return tmp_path


def train(folder, run, *overrides, **settings):
    return regard.train(
        str(folder / "my.toml"), out=folder / run, overrides=overrides, data=folder, **{"listen": print, **settings}
    )


def test_each_epoch_has_noise_of_its_own_and_a_stopped_run_resumes_to_the_same_bits(folder, monkeypatch):
    seen, original = [], trainer.training_step

    def recorded(*arguments, **keywords):
        seen.append(sorted(ids for batch in arguments[2] for ids in batch.source.as_lists()))
        return original(*arguments, **keywords)

    monkeypatch.setattr(trainer, "training_step", recorded)
    train(folder, "uninterrupted")
    # Each step is one epoch.
    assert [len(sources) for sources in seen] == [60] * 8 and len({str(sources) for sources in seen}) == 8
    uninterrupted, steps = seen[:], []
    seen.clear()

    def listen(event):
        if isinstance(event, Progress):
            steps.append(event.step)

    assert not train(folder, "parts", listen=listen, stop=lambda: 5 in steps).finished
    assert train(folder, "parts").finished
    assert seen == uninterrupted
    whole, parts = (load_file(folder / run / "final" / "weights.safetensors") for run in ("uninterrupted", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_a_run_with_placeholders_keeps_protected_spans(folder):
    train(folder, "run")
    model = load_translator(folder / "run", "translate")
    assert len(placeholder_ids(model.tokenizers.target)) == 20
    [output] = model.translate(["Tom has 12345 dogs, see <b>https://example.org</b> 😊."])
    assert all(span in output for span in ("12345", "<b>", "https://example.org", "</b>", "😊"))


def test_without_placeholders_the_vocabulary_has_no_symbols_for_them(folder):
    train(folder, "run", "data.augment.placeholders=0", "train.steps=1")
    model = load_translator(folder / "run", "translate")
    assert placeholder_ids(model.tokenizers.target) == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.augment.typo=0.1"], "did you mean 'typos'"),
        (["data.augment.lower=2"], "it is a share of the examples, from 0 to 1"),
        (["tokenizer.sampling=0.1"], "data.augment and tokenizer.sampling cannot be combined"),
        (["tokenizer.kind=char"], "data.augment.placeholders needs subwords"),
        (["model={kind='nat', width=16, num_heads=2}", "data.augment.placeholders=0"], "the same tokens in each epoch"),
    ],
)
def test_mistakes_are_named(folder, overrides, message):
    with pytest.raises(ConfigError, match=message):
        train(folder, "run", *overrides)


def test_other_tasks_refuse_noise():
    with pytest.raises(ConfigError, match=r"data\.augment is for translation, not for tagging; leave it out"):
        regard.train(load_recipe("runs", ["data.augment={typos=0.1}"]), out="nowhere")


def epochs_of(folder, *overrides):
    task = task_of(resolve(load_recipe(str(folder / "my.toml"), overrides)))
    corpus = task.read([folder])
    codec = task.fit(corpus.train)
    dataset = task.dataset(corpus.train, codec)
    return task, corpus.train, codec, dataset, task.epochs(corpus.train, dataset, codec)


def test_an_epoch_is_the_text_with_noise_encoded(folder):
    task, train, codec, dataset, epochs = epochs_of(folder)
    noisy = augmented(train.pairs, task.recipe.data.augment, seed=1, epoch=2)
    assert 20 < sum(one is not plain for one, plain in zip(noisy, train.pairs, strict=True)) < 60
    drawn, expected = epochs(2), task.encode(noisy, codec)
    for side in ("source", "target"):
        rows = [drawn[side][row] for row in range(len(drawn))]
        assert rows == [expected[side][row] for row in range(60)] != [dataset[side][row] for row in range(60)]


def test_rates_of_zero_encode_nothing_again(folder):
    zero = [f"data.augment.{name}=0" for name in ("placeholders", "typos", "lower")]
    *_, dataset, epochs = epochs_of(folder, *zero)
    assert epochs(0) is dataset and epochs(1) is dataset
