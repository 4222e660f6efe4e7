"""Parameter counts of the paper's models (Table 3), by a formula that a reader can check."""

import pytest

from regard.errors import ConfigError
from regard.models import build_model, expected_shapes, model_config

VOCABULARY = 37_000


def by_formula(*, layers=6, width=512, hidden=2048, heads=8, key=64, value=64, learned=False):
    embedding = VOCABULARY * width  # one matrix for source, target and output
    attention = 2 * width * heads * key + 2 * width * heads * value  # W^Q and W^K, W^V and W^O, no biases
    feed_forward = 2 * width * hidden + hidden + width
    norm = 2 * width
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    positions = 2 * 1024 * width if learned else 0
    return embedding + layers * (encoder_layer + decoder_layer) + positions


TABLE_3 = {  # name: overrides of base, arguments of the formula, millions in the paper where it gives them
    "base": ({}, {}, 65),
    "A h=1": ({"num_heads": 1}, {"heads": 1, "key": 512, "value": 512}, None),
    "A h=4": ({"num_heads": 4}, {"heads": 4, "key": 128, "value": 128}, None),
    "A h=16": ({"num_heads": 16}, {"heads": 16, "key": 32, "value": 32}, None),
    "A h=32": ({"num_heads": 32}, {"heads": 32, "key": 16, "value": 16}, None),
    "B dk=16": ({"key_width": 16}, {"key": 16}, 58),
    "B dk=32": ({"key_width": 32}, {"key": 32}, 60),
    "C N=2": ({"num_layers": 2}, {"layers": 2}, 36),
    "C N=4": ({"num_layers": 4}, {"layers": 4}, 50),
    "C N=8": ({"num_layers": 8}, {"layers": 8}, 80),
    "C d=256": ({"width": 256}, {"width": 256, "key": 32, "value": 32}, 28),
    "C d=1024": ({"width": 1024}, {"width": 1024, "key": 128, "value": 128}, 168),
    "C ff=1024": ({"hidden": 1024}, {"hidden": 1024}, 53),
    "C ff=4096": ({"hidden": 4096}, {"hidden": 4096}, 90),
    "E learned": ({"positions": "learned"}, {"learned": True}, None),
    "big": ({"preset": "big"}, {"width": 1024, "hidden": 4096, "heads": 16}, 213),
}


SIZES = {"source_size": VOCABULARY, "target_size": VOCABULARY}


@pytest.mark.parametrize("name", TABLE_3)
def test_parameter_counts_equal_the_formula_and_are_close_to_the_papers(name):
    overrides, arguments, millions = TABLE_3[name]
    shapes = expected_shapes({"kind": "transformer", "preset": "base", **overrides}, **SIZES)
    count = sum(shape.numel() for shape in shapes.values())
    assert count == by_formula(**arguments)
    # Close, not equal: the paper does not give the exact size of its vocabulary.
    if millions is not None:
        assert count / 1e6 == pytest.approx(millions, rel=0.07)


def test_a_model_counts_its_parameters():
    assert build_model({"kind": "transformer", "preset": "base"}, **SIZES).num_parameters() == by_formula()


def test_presets_have_the_papers_sizes():
    _, base = model_config({"kind": "transformer", "preset": "base"})
    assert (base.num_layers, base.width, base.hidden, base.num_heads, base.dropout) == (6, 512, 2048, 8, 0.1)
    assert (base.heads.key_width, base.norm_order, base.positions, base.feed_forward) == (
        64,
        "post",
        "sinusoid",
        "relu",
    )
    _, big = model_config({"kind": "transformer", "preset": "big"})
    assert (big.num_layers, big.width, big.hidden, big.num_heads, big.dropout) == (6, 1024, 4096, 16, 0.3)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"kind": "transfromer"}, "did you mean 'transformer'"),
        ({"kind": "transformer", "preset": "bigg"}, "did you mean 'big'"),
        ({"kind": "transformer", "widht": 64}, "did you mean 'width'"),
        ({"kind": "transformer", "width": 100, "num_heads": 8}, "not a multiple of num_heads .8.; try 96"),
        ({"kind": "transformer", "width": "wide"}, "model.width is 'wide': expected a whole number"),
    ],
)
def test_an_impossible_model_is_refused_with_what_would_fit(table, sentence):
    with pytest.raises(ConfigError, match=sentence):
        build_model(table, source_size=10, target_size=10)


def test_separate_vocabularies_cannot_share_all_embeddings():
    with pytest.raises(ConfigError, match=r"set model.tie=target"):
        build_model({"kind": "transformer", "preset": "tiny"}, source_size=10, target_size=12)
    model = build_model({"kind": "transformer", "preset": "tiny", "tie": "target"}, source_size=10, target_size=12)
    assert model.output_weight is model.target_embedding
