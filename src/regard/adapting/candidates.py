"""The recipes that are tried: learning rates and methods. The lengths follow in `choosing.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from regard.config import Bitext, Recipe, TrainConfig
from regard.decoding.translator import Translator
from regard.text.pair import Pair

TOKENS = 1024  # per batch and side: small corpora need many small steps more than large batches
WIDTH = 256  # of the model for which the rates below are; other models get rates in inverse proportion to their width
FEWEST_STEPS, MOST_STEPS = 20, 50  # of the first round
EPOCHS = 2  # of the first round
METHODS: dict[str, Literal["none", "lora"]] = {"full": "none", "lora": "lora"}


@dataclass(frozen=True)
class AdaptCandidate:
    """A way to train: a method and a learning rate."""

    method: str  # in METHODS
    rate: float

    @property
    def name(self) -> str:
        """The name of its folder, and what messages call it."""
        return f"{self.method}-{self.rate:.1e}"


def candidates_for(width: int) -> list[AdaptCandidate]:
    """Return what is tried with a model of this width; first what forgets least."""
    grid = (("full", 5e-5), ("lora", 1e-3), ("full", 1.5e-4))
    return [AdaptCandidate(method, float(f"{rate * WIDTH / width:.2g}")) for method, rate in grid]


def first_round(translator: Translator, train: Sequence[Pair], share: float) -> int:
    """Return the steps of the first round: about two epochs of text and replay, within bounds."""
    tokens = sum(map(len, translator.tokenizers.target.encode_all([pair.target for pair in train])))
    steps = math.ceil(EPOCHS * (1 + share) * (tokens + len(train)) / TOKENS)
    return min(max(steps, FEWEST_STEPS), MOST_STEPS)


def candidate_recipe(
    base: Recipe,
    candidate: AdaptCandidate,
    *,
    name: str,
    init: str,
    train: Sequence[Bitext],
    test: dict[str, Bitext],
    steps: int,
    seed: int,
    device: str,
) -> Recipe:
    """Return the recipe of a candidate: the base's model, noise and search, on other text, from the base's weights.

    The rate is constant, so that a run can be continued, and the weights are averaged over the last steps.
    """
    data = msgspec.structs.replace(
        base.data, train=tuple(train), valid=None, test=test, decontaminate=False, origin=None, folders=None
    )
    own = base.train
    settings = TrainConfig(
        steps=steps,
        tokens=TOKENS,
        optimizer="adam",
        schedule="wsd",
        decay=1e-6,
        lr=candidate.rate,
        warmup_steps=FEWEST_STEPS // 2,
        label_smoothing=own.label_smoothing,
        clip_norm=1.0,
        ema=0.95,
        checkpoint_every=FEWEST_STEPS,
        keep=1,
        log_every=5,
        seed=seed,
        init=init,
        adapt=METHODS[candidate.method],
        device=device,
        precision=own.precision,
        kernels=own.kernels,
        graph=own.graph,
        threads=own.threads,
    )
    return msgspec.structs.replace(base, name=name, data=data, train=settings)
