"""Small members of every model family, for laws that must hold for all of them."""

import pytest
import torch

from regard.data.ragged import Ragged
from regard.models import MODELS, build_model
from regard.models.base import NonAutoregressive

SMALL = {
    "transformer": {"width": 16, "num_layers": 2, "num_heads": 2, "hidden": 24, "dropout": 0.1},
    "rnn": {"width": 16, "hidden": 24, "num_layers": 2, "dropout": 0.1},
    "convs2s": {"width": 16, "encoder": [[16, 3], [24, 3]], "decoder": [[16, 3], [24, 2]], "dropout": 0.1},
    "bytenet": {"width": 16, "dilations": [1, 2], "sets": 2, "dropout": 0.1},
}
SMALL |= dict.fromkeys(("nat", "cmlm", "ctc"), SMALL["transformer"])
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
}
assert VARIANTS.keys() == set(MODELS.names()), "a new family needs its variants here"
ALL = {
    f"{kind}-{name}": {"kind": kind, **SMALL[kind], **keys}
    for kind in VARIANTS
    for name, keys in VARIANTS[kind].items()
}
AT_ONCE = {
    name: table
    for name, table in ALL.items()
    if issubclass(MODELS.get(table["kind"], where="kind").build, NonAutoregressive)
}
TOKEN_BY_TOKEN = {name: table for name, table in ALL.items() if name not in AT_ONCE}
VOCABULARY = 11


def small(table):
    """A small model with random weights, not training."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return build_model(table, source_size=VOCABULARY, target_size=VOCABULARY).eval()


# Fixtures for all laws: a newcomer is tested by being listed.


@pytest.fixture(params=ALL.values(), ids=ALL.keys())
def any_table(request):
    """The `[model]` table of one."""
    return request.param


@pytest.fixture
def any_model(any_table):
    return small(any_table)


@pytest.fixture(params=MODELS)
def family(request):
    """One model per family, for what does not depend on the variant."""
    return small(next(table for table in ALL.values() if table["kind"] == request.param))


@pytest.fixture(params=TOKEN_BY_TOKEN.values(), ids=TOKEN_BY_TOKEN.keys())
def model(request):
    """One that writes token by token."""
    return small(request.param)


@pytest.fixture(params=AT_ONCE.values(), ids=AT_ONCE.keys())
def non_autoregressive(request):
    """One that writes all tokens at once."""
    return small(request.param)


@pytest.fixture
def source():
    return Ragged.from_lists([[5, 6, 7, 8, 2], [9, 2], [3, 4, 5, 2]])


@pytest.fixture
def target():
    return Ragged.from_lists([[1, 4, 9, 3], [1, 7, 7, 7, 8, 3], [1, 5]])
