"""What is known of how a model produced one output: attention of every layer and head, probabilities, alternatives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from regard.explain.attention import Attention, AttentionWeights, Axis, mean_over_heads, merge_words, normalized_entropy
from regard.explain.pictures import Picture

if TYPE_CHECKING:
    from regard.decoding.sampling import SampleOptions


@dataclass(frozen=True)
class Alternative:
    """Another token that the model could have output at a position."""

    id: int
    token: str  # as it is displayed
    probability: float
    text: str  # the complete output if this token is forced; empty if it was not computed
    trace: Trace | None = None  # how that output came about, without alternatives; None if it was not computed


@dataclass(frozen=True)
class Trace:
    """The axes of one example by name, and the attention between them.

    The axis "source" is the input of the model and "target" is its output. In a translation both end in EOS, and "read"
    is the decoder input: BOS, then the target without its last token. A task may add axes of its own.
    """

    model: str
    axes: Mapping[str, Axis]
    attentions: list[Attention]
    probabilities: list[float] = field(default_factory=list)  # of each target token; empty if the model has none
    alternatives: list[list[Alternative]] = field(default_factory=list)  # for each target token, most likely first
    pictures: tuple[Picture, ...] = ()  # the first is the one that says most

    @property
    def source(self) -> Axis:
        return self.axes["source"]

    @property
    def target(self) -> Axis:
        return self.axes["target"]

    def axes_of(self, attention: Attention) -> tuple[Axis, Axis]:
        """Return the query axis and the key axis of an attention."""
        return self.axes[attention.queries], self.axes[attention.keys]

    def layers(self, name: str) -> list[Attention]:
        """Return the layers of one kind of attention, lowest first."""
        return [one for one in self.attentions if one.name == name]

    @property
    def names(self) -> list[str]:
        """The kinds of attention in this trace, in the order of the data flow."""
        return list(dict.fromkeys(one.name for one in self.attentions))

    @property
    def main_name(self) -> str:
        """The kind that is shown first: attention between two sequences if there is any."""
        return next((one.name for one in self.attentions if not one.self_attention), self.names[0])


@dataclass(frozen=True)
class TraceOptions:
    """What is asked of a trace."""

    name: str = ""  # what the trace calls the model
    beam: int | None = None  # of tasks that search; None: that of the recipe
    alternatives: int = 0  # other outputs at each position
    sample: SampleOptions | None = None  # of tasks that can draw their output at random; None: search


# Alignment

UNIFORM = 0.95  # normalized entropy; some heads of models that have learned to translate are below 0.5
FEWEST_KEYS = 4  # tokens; shorter sources are not judged


def source_entropy(trace: Trace) -> float | None:
    """Return the smallest normalized entropy of a head over the source.

    None if no head attends to it, if it is too short or the output is empty, or if weights are not finite.
    """
    layers = trace.layers("encoder-decoder")
    if not layers or len(trace.source.tokens) < FEWEST_KEYS or not trace.target.words_without_eos:
        return None
    entropy = float(min(normalized_entropy(one.weights).min() for one in layers))
    return entropy if math.isfinite(entropy) else None


def has_uniform_attention(trace: Trace) -> bool:
    """Return whether all heads give all source tokens nearly the same weight, so that attention aligns nothing."""
    entropy = source_entropy(trace)
    return entropy is not None and entropy >= UNIFORM


def soft_alignment(trace: Trace) -> AttentionWeights:
    """Return the mean encoder-decoder attention over all layers and heads: [target tokens, source tokens]."""
    layers = [mean_over_heads(one.weights) for one in trace.layers("encoder-decoder")]
    if not layers:
        return np.zeros((len(trace.target.tokens), len(trace.source.tokens)), dtype=np.float32)
    return np.mean(layers, axis=0, dtype=np.float32)


def moses_pairs(trace: Trace) -> list[tuple[int, int]]:
    """Return (source word, target word) pairs as Moses counts them: for each target word its most attended source word.

    There are none if the attention is uniform.
    """
    source, target = trace.source.words_without_eos, trace.target.words_without_eos
    weights = soft_alignment(trace)
    if not source or not target or not weights.any() or has_uniform_attention(trace):
        return []
    between = merge_words(weights[None], target, source)[0]
    return sorted((int(row.argmax()), number) for number, row in enumerate(between))
