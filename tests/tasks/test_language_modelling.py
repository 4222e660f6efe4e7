"""Perplexity, blocks of long texts, and continuations of prompts."""

import pytest
import torch

from regard.config import Recipe
from regard.decoding.sampling import SampleOptions, sample
from regard.decoding.torch_scores import draw
from regard.errors import ConfigError, DecodeError
from regard.models.decoder import Decoder
from regard.recipe_files import load_recipe
from regard.tasks import task_of
from regard.tasks.language_modelling import blocks
from regard.tasks.recipe_checks import resolve
from regard.tasks.word_codec import WordCodec
from regard.text.corpus import Pair
from regard.text.tokenizer import BOS, EOS, train_tokenizer

SMALL = {"width": 16, "num_layers": 1, "num_heads": 2, "hidden": 24, "dropout": 0.0}


@pytest.fixture
def task():
    recipe: Recipe = load_recipe("counting", ["data.max_length=4"])
    return task_of(recipe)


@pytest.fixture
def codec():
    tokenizer = train_tokenizer(["0 1 2 3 4 5 6"], kind="word", size=10)
    return WordCodec(tokenizer)


def test_a_uniform_model_has_the_perplexity_of_the_vocabulary_size(task, codec):
    model = Decoder(source_size=codec.tokenizer.size, **SMALL)
    torch.nn.init.zeros_(model.embedding)
    found = task.evaluate(task.predictor(model.eval(), codec), [Pair("0 1 2", "0 1 2"), Pair("6 5 4 3 2 1", "")])
    scores = {score.name: score.value for score in found}
    assert scores == {"perplexity": pytest.approx(10), "word_perplexity": pytest.approx(10)}
    assert found[0].signature == "11 tokens, ends included"


def test_words_with_unknown_symbols_do_not_improve_the_perplexity_per_word(task, codec):
    """The model is uniform over 10 tokens: each costs log 10, and 8 and 9 are unknown."""
    model = Decoder(source_size=codec.tokenizer.size, **SMALL)
    torch.nn.init.zeros_(model.embedding)
    found = task.evaluate(task.predictor(model.eval(), codec), [Pair("0 8 1", ""), Pair("9", ""), Pair("2", "")])
    scores = {score.name: score for score in found}
    # 5 tokens and 3 ends; of the words and ends, 8 and 9 do not count.
    assert scores["perplexity"].value == pytest.approx(10)
    assert scores["perplexity"].signature == "8 tokens, ends included, 2 unknown"
    assert scores["word_perplexity"].value == pytest.approx(10 ** (8 / 6))
    expected = "6 words, ends included; 2 words with unknown symbols cost as much as their tokens but do not count"
    assert scores["word_perplexity"].signature == expected


def test_every_token_of_a_long_text_is_predicted_once(task, codec):
    assert blocks([5, 6, 7, 8, 9], 4) == [([BOS, 5, 6, 7], [5, 6, 7, 8]), ([8, 9], [9, EOS])]
    columns = task.encode([Pair("0 1 2 3 4 5 6", "")], codec)
    assert [columns["target"][0], columns["target"][1]] == [[3, 4, 5, 6], [7, 8, 9, EOS]]


def test_top_k_and_temperature_restrict_what_is_drawn():
    logits = torch.tensor([[0.0, 3.0, 2.0, 1.0]]).expand(200, -1)
    numbers = torch.arange(200, dtype=torch.float64) / 200
    assert set(draw(logits, SampleOptions(top_k=2), numbers).tolist()) == {1, 2}
    assert set(draw(logits, SampleOptions(temperature=0), numbers).tolist()) == {1}
    assert set(draw(logits, SampleOptions(temperature=100.0), numbers).tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("temperature", [-1.0, 1e-40, 0.009, 101.0, float("nan"), float("inf")])
def test_a_temperature_that_cannot_be_computed_with_is_refused(temperature):
    with pytest.raises(
        DecodeError, match=r"temperature is .*; (it must be 0, or from 0\.01 to 100|numbers must be finite)"
    ):
        SampleOptions(temperature=temperature)
    assert SampleOptions(temperature=0.01).temperature == 0.01


def test_samples_begin_with_their_prompts_and_follow_from_the_seed():
    torch.manual_seed(1)
    model, prompts = Decoder(source_size=10, **SMALL).eval(), [[3, 4, 5], [], [6]]
    options = SampleOptions(max_tokens=5)
    first = sample(model, prompts, options)
    assert [ids[: len(prompt)] for ids, prompt in zip(first, prompts, strict=True)] == prompts
    assert all(len(ids) <= len(prompt) + 5 for ids, prompt in zip(first, prompts, strict=True))
    assert first == sample(model, prompts, options)


def test_a_sample_does_not_depend_on_the_other_prompts():
    torch.manual_seed(1)
    model, prompts = Decoder(source_size=30, **SMALL).eval(), [[3, 4, 5], [], [6], [7, 8, 9, 3], [6]]
    options = SampleOptions(max_tokens=8)
    together = sample(model, prompts, options)
    assert together[:4] == [sample(model, [prompt], options)[0] for prompt in prompts[:4]]
    assert together[3::-1] == sample(model, prompts[3::-1], options)
    assert sample(model, prompts, options, budget=1) == together
    # Equal prompts have different continuations, and so do other seeds.
    assert together[2] != together[4]
    assert together[0] != sample(model, [prompts[0]], SampleOptions(max_tokens=8, seed=2))[0]


def test_tokens_are_drawn_as_often_as_their_probabilities_say():
    logits = torch.tensor([[0.1, 0.2, 0.0, 0.7]]).log().expand(1000, -1)
    numbers = torch.arange(1000, dtype=torch.float64) / 1000
    drawn = torch.bincount(draw(logits, SampleOptions(), numbers), minlength=4).tolist()
    assert drawn == pytest.approx([100, 200, 0, 700], abs=1)


def test_a_metric_of_outputs_is_refused():
    with pytest.raises(ConfigError, match=r"train.metric is 'exact', which compares any; for probabilities use loss"):
        resolve(load_recipe("counting", ["train.metric=exact"]))
    with pytest.raises(ConfigError, match=r"train.metric is 'perplexity'"):
        resolve(load_recipe("copy", ["train.metric=perplexity"]))
