"""Small members of every model family, for laws that must hold for all of them."""

import pytest
import torch

from regard.data.ragged import Ragged
from regard.models import MODELS, build_model

SMALL = {
    "transformer": {"width": 16, "num_layers": 2, "num_heads": 2, "hidden": 24, "dropout": 0.1},
    "rnn": {"width": 16, "hidden": 24, "num_layers": 2, "dropout": 0.1},
    "convs2s": {"width": 16, "encoder": [[16, 3], [24, 3]], "decoder": [[16, 3], [24, 2]], "dropout": 0.1},
    "bytenet": {"width": 16, "dilations": [1, 2], "sets": 2, "dropout": 0.1},
}
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
    },
    "convs2s": {"plain": {}, "tied": {"tie": "all"}},
    "bytenet": {"plain": {}, "longer": {"extra": 3, "stretch": 1.5}, "tied": {"tie": "target"}},
}
assert VARIANTS.keys() == MODELS.keys(), "a new family needs its variants here"
MEMBERS = {
    f"{kind}-{name}": {"kind": kind, **SMALL[kind], **keys} for kind in MODELS for name, keys in VARIANTS[kind].items()
}
VOCABULARY = 11


@pytest.fixture(params=MEMBERS.values(), ids=MEMBERS.keys())
def model(request):
    """A small model with random weights, not training. One fixture for all laws: a newcomer is tested by being listed."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return build_model(request.param, source_size=VOCABULARY, target_size=VOCABULARY).eval()


@pytest.fixture
def source():
    return Ragged.from_lists([[5, 6, 7, 8, 2], [9, 2], [3, 4, 5, 2]])


@pytest.fixture
def target():
    return Ragged.from_lists([[1, 4, 9, 3], [1, 7, 7, 7, 8, 3], [1, 5]])
