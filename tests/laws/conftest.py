"""Small models of every family and variant, for laws that must hold for all. A new family is tested by being listed."""

import pytest
import torch

from regard.data.batch import Batch, make_batch, shift_right
from regard.data.ragged import Layout, Ragged
from regard.models import MODELS, build_model
from regard.models.base import Model, NonAutoregressive, Seq2Seq
from regard.models.decoder import Decoder
from regard.models.pointer import END, Pointer
from regard.models.tagger import Classifier, Tagger
from regard.text.tokenizer import BOS, EOS

SMALL = {
    "transformer": {"width": 16, "num_layers": 2, "num_heads": 2, "hidden": 24, "dropout": 0.1},
    "rnn": {"width": 16, "hidden": 24, "num_layers": 2, "dropout": 0.1},
    "convs2s": {"width": 16, "encoder": [[16, 3], [24, 3]], "decoder": [[16, 3], [24, 2]], "dropout": 0.1},
    "bytenet": {"width": 16, "dilations": [1, 2], "sets": 2, "dropout": 0.1},
}
SMALL |= dict.fromkeys(("nat", "cmlm", "ctc", "tagger", "classifier", "pointer", "decoder"), SMALL["transformer"])
VARIANTS = {
    "transformer": {
        "paper": {},
        "pre-norm": {"norm_order": "pre"},
        "rms": {"norm": "rms"},
        "learned": {"positions": "learned"},
        "rotary": {"positions": "rotary"},
        "gelu": {"feed_forward": "gelu"},
        "swiglu": {"feed_forward": "swiglu"},
        "conv": {"feed_forward": "conv"},
        "qk-norm": {"qk_norm": True},
        "window": {"window": 1},
        "untied": {"tie": "none"},
        "wide values": {"key_width": 4, "value_width": 12},
        "shallow decoder": {"decoder_layers": 1},
        "explicit": {"attention": "explicit"},
        "tensor2tensor": {"attention_dropout": 0.1, "activation_dropout": 0.1, "norm_order": "pre"},
        "copy": {"copy": True},
    },
    "rnn": {
        "additive": {},
        "lstm": {"cell": "lstm"},
        "none": {"attention": "none"},
        "none lstm": {"attention": "none", "cell": "lstm"},
        "dot": {"attention": "dot"},
        "general": {"attention": "general", "cell": "lstm"},
        "concat": {"attention": "concat"},
        "local": {"attention": "general", "window": 1, "cell": "lstm"},
        "local additive": {"window": 2},
        "no feeding": {"attention": "dot", "input_feeding": False},
        "concat no feeding": {"attention": "concat", "input_feeding": False, "cell": "lstm", "window": 1},
        "one layer tied": {"num_layers": 1, "tie": "all"},
        "wide encoder": {"encoder_hidden": 32},
        "one direction": {"bidirectional": False, "attention": "general", "encoder_hidden": 14},
        "copy": {"copy": True, "cell": "lstm", "encoder_hidden": 32},
    },
    "convs2s": {"plain": {}, "tied": {"tie": "all"}},
    "bytenet": {
        "plain": {},
        "longer": {"extra": 3, "stretch": 1.5},
        "tied": {"tie": "target"},
        "far": {"dilations": [1, 16]},
    },
    "nat": {"paper": {}, "few fertilities": {"fertilities": 3, "tie": "target"}},
    "cmlm": {"paper": {}, "pre-norm": {"norm_order": "pre"}, "learned untied": {"positions": "learned", "tie": "none"}},
    "ctc": {"paper": {}, "two places": {"places": 2, "tie": "target"}},
    "tagger": {"plain": {}, "pre-norm rotary": {"norm_order": "pre", "positions": "rotary"}},
    "classifier": {"plain": {}},
    "pointer": {
        "plain": {},
        "pre-norm": {"norm_order": "pre"},
        "rotary": {"positions": "rotary"},
        "window": {"window": 1, "decoder_layers": 1},
    },
    "decoder": {
        "plain": {},
        "pre-norm rotary": {"norm_order": "pre", "positions": "rotary"},
        "learned swiglu": {"positions": "learned", "feed_forward": "swiglu"},
        "window": {"window": 1},
    },
}
assert VARIANTS.keys() == set(MODELS.names()), "a new family needs its variants here"
ALL = {
    f"{kind}-{name}": {"kind": kind, **SMALL[kind], **keys}
    for kind in VARIANTS
    for name, keys in VARIANTS[kind].items()
}


def tables_of(contract):
    """The `[model]` tables of the models that keep a contract. Variants after the first of a family are slow."""
    return [
        pytest.param(
            table,
            id=name,
            marks=[] if name == f"{table['kind']}-{next(iter(VARIANTS[table['kind']]))}" else pytest.mark.slow,
        )
        for name, table in ALL.items()
        if issubclass(MODELS.get(table["kind"], where="kind").build, contract)
    ]


VOCABULARY = 11
LABELS = 5
SIZES = {
    "translation": {"source_size": VOCABULARY, "target_size": VOCABULARY},
    "tagging": {"source_size": VOCABULARY, "num_labels": LABELS},
    "classification": {"source_size": VOCABULARY, "num_labels": LABELS},
    "pointing": {"source_size": VOCABULARY},
    "language-modelling": {"source_size": VOCABULARY},
}


def build(table):
    """A small model with random weights, in training mode."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return build_model(table, **SIZES[MODELS.get(table["kind"], where="kind").task])


def small(table):
    """The same model in evaluation mode."""
    return build(table).eval()


def fitting(model, ids, length):
    """Turn ids of a vocabulary into outputs that the model can give for a source of this length."""
    return [1 + one % length for one in ids] if isinstance(model, Pointer) else list(ids)


def batch_for(model, sources, targets):
    """Return a batch of the model's task, made of pairs of sequences of ids."""
    if isinstance(model, Tagger | Classifier):
        source = Ragged.from_lists(sources)
        if isinstance(model, Tagger):
            labels = Ragged(source.values % LABELS, source.layout)
        else:
            labels = Ragged(torch.tensor([sum(ids) % LABELS for ids in targets]), Layout([1] * len(targets)))
        return Batch(source, None, labels, labels.layout.total)
    if isinstance(model, Pointer):
        outputs = [[*fitting(model, t, len(s)), END] for s, t in zip(sources, targets, strict=True)]
        labels = Ragged.from_lists(outputs)
        return Batch(Ragged.from_lists(sources), shift_right(labels, END), labels, labels.layout.total)
    if isinstance(model, Decoder):
        labels = Ragged.from_lists([[*ids, EOS] for ids in targets])
        read = shift_right(labels, BOS)
        return Batch(read, read, labels, labels.layout.total)
    return make_batch(sources, targets)


@pytest.fixture(params=tables_of(Model))
def any_table(request):
    """The `[model]` table of any model."""
    return request.param


@pytest.fixture
def any_model(any_table):
    return small(any_table)


@pytest.fixture(params=VARIANTS)
def family(request):
    """One model per family, for what does not depend on the variant."""
    return small(next(table for table in ALL.values() if table["kind"] == request.param))


@pytest.fixture(params=tables_of(Seq2Seq))
def model(request):
    """A model that outputs one token after another."""
    return small(request.param)


@pytest.fixture(params=tables_of(NonAutoregressive))
def non_autoregressive(request):
    return small(request.param)


SOURCES = [[5, 6, 7, 8, 2], [9, 2], [3, 4, 5, 2]]


@pytest.fixture
def source():
    return Ragged.from_lists(SOURCES)


@pytest.fixture
def target(model):
    """What the decoder reads: the first token, and outputs that fit the sources."""
    outputs = [[4, 9, 3], [7, 7, 7, 8, 3], [5]]
    return Ragged.from_lists(
        [[model.bos, *fitting(model, ids, len(source))] for source, ids in zip(SOURCES, outputs, strict=True)]
    )
