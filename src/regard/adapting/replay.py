"""Replay against forgetting: the base model's own translations of general sources, or of the new ones if there are none.

Training on general pairs next to those of the domain is mixed fine-tuning (Chu et al. 2017). The targets are the
base model's own translations, so that replay asks for nothing new; references did not keep more (LOG.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from regard.decoding.translator import Translator
from regard.text.pair import Pair

ReplayKind = Literal["auto", "self", "none"]
# Examples of replay per example of the domain: as many of the general text, and half as many translations of the same
# sources, which compete with the references.
SHARE = {"general": 1.0, "self": 0.5}
FEWEST, PER_EXAMPLE = 500, 2  # general sources that are translated: so many per example of the domain


def own_translations(translator: Translator, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the sources with the model's own translations, without those that are blank."""
    outputs = translator.translate([pair.source for pair in pairs])
    made = [Pair(pair.source, output) for pair, output in zip(pairs, outputs, strict=True)]
    return [pair for pair in made if pair.target.strip()]


def sources_of_replay(general: Sequence[Pair], *, train: int) -> Sequence[Pair]:
    """Return the general pairs whose sources are translated; the pairs are in random order already."""
    return general[: max(FEWEST, PER_EXAMPLE * train)]


def replay_weight(kind: Literal["general", "self"], *, train: int, replay: int) -> float:
    """Return the weight of the replay text (`data.train.weight`) next to a text of weight 1."""
    return min(max(round(SHARE[kind] * train / replay, 6), 1e-6), 1e6)
