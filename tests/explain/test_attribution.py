"""Which words an output depends on: numbers that can be redone from probabilities, and silenced heads."""

import numpy as np
import pytest
import torch

from regard.data.ragged import Ragged
from regard.errors import DecodeError
from regard.explain.attribution import METHODS, attribute, leave_one_out, next_token, probabilities
from regard.explain.head_gates import Head, all_heads, attention_layers, silenced
from regard.models.transformer import Transformer

SENTENCE, PREFIX = "I like the dog because it is friendly.", "Ich mag den Hund, weil"


@pytest.fixture(scope="module")
def question(translator):
    return next_token(translator, SENTENCE, PREFIX, "er")


@pytest.fixture(scope="module")
def attributions(question):
    return attribute(question)


def small_model(**options):
    torch.manual_seed(1)
    sizes = {"width": 16, "num_heads": 2, "num_layers": 2, "hidden": 32, "dropout": 0.0}
    return Transformer(source_size=20, target_size=20, **{**sizes, **options}).eval()


def batch(*rows):
    return Ragged.from_lists([list(row) for row in rows], "cpu")


def test_probabilities_are_those_of_forced_decoding(translator, question):
    [scored] = translator.score([SENTENCE], [f"{PREFIX} er"])
    place = len(question.prefix_ids)
    assert question.log_probability() == pytest.approx(scored.tokens[place].score, abs=1e-4)
    assert probabilities(translator, SENTENCE, PREFIX, ["er"])["er"] == pytest.approx(
        np.exp(question.log_probability())
    )


@pytest.mark.slow
def test_the_methods_have_one_number_per_word(question, attributions):
    found = attributions
    assert tuple(found) == METHODS
    assert {len(numbers) for numbers in found.values()} == {len(question.source.word_texts)}
    assert question.source.word_texts[:4] == ["I", "like", "the", "dog"]
    # Attention and rollout are shares of 1.
    assert [found[name].sum() for name in METHODS[:2]] == pytest.approx([1, 1], abs=1e-4)


@pytest.mark.slow
def test_integrated_gradients_sum_to_the_difference_from_vectors_of_zeros(question, attributions):
    """Completeness (Sundararajan et al. 2017): nothing is left over."""
    layout = batch(question.source_ids).layout
    zeros = torch.zeros(len(question.source_ids), question.model.width)
    with torch.inference_mode():
        without = question.log_probabilities(question.model.encode_vectors(Ragged(zeros, layout))).item()
    total = attributions["integrated gradients"].sum()
    assert total == pytest.approx(question.log_probability() - without, abs=0.05)


def test_leaving_out_a_word_is_deleting_it(translator, question):
    shorter = next_token(translator, "I like the because it is friendly.", PREFIX, "er")
    difference = question.log_probability() - shorter.log_probability()
    assert leave_one_out(question)[3] == pytest.approx(difference, abs=1e-4)
    assert leave_one_out(question)[-1] == 0  # EOS


def test_vectors_of_words_are_encoded_as_the_words_are():
    model, source = small_model(), batch([5, 6, 7, 2])
    with torch.inference_mode():
        vectors = Ragged(model.source_vectors(source.values), source.layout)
        assert torch.allclose(model.encode_vectors(vectors).values, model.encode(source).values, atol=1e-6)


def test_a_silenced_head_gives_nothing():
    """Its columns of W^O could as well be zero."""
    model, source = small_model(), batch([5, 6, 7, 2], [8, 2])
    with torch.inference_mode():
        with silenced(model, [Head("encoder", 2, 1)]):
            found = model.encode(source).values
        weight = model.encoder[1].attention.output.weight
        before = weight.clone()
        weight.data[:, :8] = 0  # two heads of width 8
        expected = model.encode(source).values
        weight.data.copy_(before)
        complete = model.encode(source).values
    assert torch.allclose(found, expected, atol=1e-6)
    assert not torch.allclose(found, complete, atol=1e-3)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "encoder-decoder"])
def test_every_kind_of_attention_is_silenced_and_comes_back(kind):
    model, source, target = small_model(), batch([5, 6, 7, 2]), batch([1, 9, 4])
    heads = [head for head in all_heads(model) if head.attention == kind]
    with torch.inference_mode():
        complete = model.decode(target, model.encode(source))
        with silenced(model, heads):
            silent = model.decode(target, model.encode(source))
        again = model.decode(target, model.encode(source))
    assert not torch.allclose(silent, complete, atol=1e-3)
    assert torch.equal(again, complete)


def test_heads_are_named_by_kind_layer_and_number():
    model = small_model(decoder_layers=1)
    assert [(one.attention, one.layer) for one in attention_layers(model)] == [
        ("encoder", 1), ("encoder", 2), ("decoder", 1), ("encoder-decoder", 1),
    ]  # fmt: skip
    assert len(all_heads(model)) == 8
    assert str(Head("encoder", 2, 1)) == "encoder 2.1"


def test_an_unknown_head_is_an_error_that_names_those_there_are():
    with (
        pytest.raises(DecodeError, match=r"no head encoder 3.1; its heads are encoder 1.1 to 2.2, decoder 1.1 to 2.2"),
        silenced(small_model(), [Head("encoder", 3, 1)]),
    ):
        pass


def test_an_empty_word_is_refused(translator):
    with pytest.raises(DecodeError, match="is empty"):
        next_token(translator, SENTENCE, PREFIX, "")
