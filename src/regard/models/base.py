"""The contract between models and everything that uses them.

Every `Model` returns a loss:

    loss = model(batch, smoothing=0.1)           summed over the labels of the batch

A `Seq2Seq` outputs one token after another:

    memory = model.encode(source)                once per sentence
    logits = model.decode(target, memory)        training: all positions at once
    state = model.start(memory, beams=4)         search: one row per sentence
    logits = model.step(tokens, state)           search: one more token per row
    state.expand_beams()                         search: from one row per sentence to `beams` rows
    state.reorder(rows)                          search: row i continues row rows[i]

A `NonAutoregressive` model outputs all tokens at once, and may refine them:

    outputs = model.write(memory, options)       a few candidates per sentence

Shapes: N target tokens, V columns of the scores (the vocabulary, for text), B sentences, R rows: B, then B * beams.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.config import Struct
from regard.data.batch import Batch
from regard.data.columns import Indices
from regard.data.ragged import Ragged
from regard.errors import ConfigError, did_you_mean
from regard.models.states import DecoderState, GrowingState, LoadableState
from regard.nn.cross_entropy import cross_entropy, linear_cross_entropy
from regard.nn.decoder_pool import DecoderPool, DecoderShape
from regard.nn.dropout import Noise
from regard.nn.norms import Norm
from regard.text.tokenizer import BOS, EOS
from regard.toml import from_table

Config = TypeVar("Config", bound=Struct)
Growing = TypeVar("Growing", bound=GrowingState)
Static = TypeVar("Static", bound=LoadableState[Any])


class Model(nn.Module, ABC):
    """A module that turns a batch into a loss. Everything else is for particular kinds of models."""

    width: int  # d_model, which scales the learning rate of the paper
    max_length: int | None = None  # most tokens of a sequence, EOS included; None: no limit
    extras: tuple[str, ...] = ()  # names of further inputs that a batch must hold (`Batch.extras`)
    non_autoregressive = False  # whether it is a `NonAutoregressive`
    smooths_labels = True  # whether its loss depends on `smoothing`
    copies = False  # whether ids behind its vocabulary are words of the source (`text.unknown_words`)
    reads_source_eos = True  # whether the encoder reads the EOS behind a source
    # Whether packed batches should group sentences of similar length, because the model pads them to a rectangle.
    similar_lengths = False
    # Whether packed batches serve it in float32 too, because it does not need our attention kernels.
    packs_float32 = False

    def __init__(self) -> None:
        super().__init__()
        self.noise = Noise()  # the randomness of all dropout in this model; the trainer seeds it for each step

    @abstractmethod
    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        """Return the loss of a batch, summed over the labels that count (`batch.num_tokens`)."""

    @property
    def output_weight(self) -> Tensor | None:
        """The output layer's matrix [V, D]; lets the loss be computed in chunks of logits. None: the layer is another."""
        return None

    @property
    def logit_bias(self) -> Tensor | None:
        """The bias [V] that goes with `output_weight`, if there is one."""
        return None

    @property
    def static_shapes(self) -> bool:
        """Whether training needs no sentence lengths on the host, so that one CUDA graph serves all batches of a shape."""
        return False

    @property
    def searches_in_bfloat16(self) -> bool:
        """Whether search on a GPU computes in bfloat16 unless told otherwise."""
        return False

    def for_inference(self, *, precision: torch.dtype = torch.float32) -> Self:
        """Return a copy for search: in evaluation mode, without gradients, and with weights laid out for fast products.

        The copy shares no memory with this model, which can still be trained. With a `precision` other than float32 all
        weights but those of norms are rounded to it; norms, the softmax of attention and logits are computed in float32.
        """
        copied = copy.deepcopy(self, dict(self._transposed_weights())).eval().requires_grad_(False)
        for module in copied.modules():
            if isinstance(module, nn.RNNBase):
                # cuDNN wants the weights of a layer in one piece of memory.
                module.flatten_parameters()
        if precision != torch.float32:
            copied.round_weights(precision)
        return copied

    def round_weights(self, precision: torch.dtype) -> None:
        """Round all weights but those of norms."""
        for module in self.modules():
            for weight in () if isinstance(module, Norm) else module.parameters(recurse=False):
                weight.data = weight.data.to(precision)

    def _transposed_weights(self) -> Iterator[tuple[int, Any]]:
        """Yield, by their id, column-major copies of matrices on the CPU: a library multiplies few rows faster with them."""
        for module in self.modules():
            if isinstance(module, nn.Linear) and not module.weight.is_cuda:
                transposed = module.weight.detach().t().clone(memory_format=torch.contiguous_format)
                yield id(module.weight), nn.Parameter(transposed.t(), requires_grad=False)

    def num_parameters(self) -> int:
        """Return the number of values in all parameters, tied ones counted once."""
        return sum(parameter.numel() for parameter in self.parameters())


def make_config(
    kind: type[Config], config: Config | None, options: Mapping[str, Any], *, name: str | None = None
) -> Config:
    """Return the options of a model: those of `config`, or given as keyword arguments, as in `Transformer(width=256)`.

    `name` is that of the model in errors; without it, that of the struct up to "Config".
    """
    name = name or kind.__name__.removesuffix("Config")
    if config is None:
        for key in options:
            if key not in kind.__struct_fields__:
                raise ConfigError(f"{name} has no option {key!r}; {did_you_mean(key, kind.__struct_fields__)}")
        return from_table(kind, options, where=name)
    if options:
        raise ConfigError(f"give a {kind.__name__} or options, not both: {', '.join(options)}")
    return config


class Seq2Seq(Model):
    """A model that outputs one token after another."""

    # What search has to know of the columns of the scores. The defaults are those of text.
    bos: int = BOS  # the token that the decoder reads first
    eos: int = EOS  # the column that ends an output
    never: tuple[int, ...] = (BOS,)  # columns that are never output

    @property
    def members(self) -> tuple[Seq2Seq, ...]:
        """The models that it consists of: itself, or those of an ensemble."""
        return (self,)

    @abstractmethod
    def encode(self, source: Ragged) -> Any:
        """Return what the decoder reads of the source; opaque to training and search."""

    @abstractmethod
    def decode(self, target: Ragged, memory: Any) -> Tensor:
        """Return the logits of the token that follows each target prefix: [N, V]."""

    @abstractmethod
    def start(self, memory: Any, *, beams: int) -> DecoderState:
        """Return the state before the first token, with one row per sentence; `expand_beams` makes it `beams` rows."""

    @abstractmethod
    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Return the logits of each row's next token, [R, V], given its last token, [R], and advance the state by one.

        V may differ between batches; columns that a sentence does not have are minus infinity.
        """


class TextSeq2Seq(Seq2Seq):
    """A model whose scores are those of a vocabulary: an output layer turns the decoder's output into logits."""

    @abstractmethod
    def hidden(self, target: Ragged, memory: Any) -> Tensor:
        """Return the decoder's output for each target prefix, before the output layer: [N, D]."""

    @abstractmethod
    def project(self, hidden: Tensor) -> Tensor:
        """Apply the output layer: [N, D] to logits [N, V]."""

    def decode(self, target: Ragged, memory: Any) -> Tensor:
        return self.project(self.hidden(target, memory))

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        assert batch.target is not None, "a decoder reads a target"
        hidden_ND = self.hidden(batch.target, self.encode(batch.source))
        labels_N, weight_VD = batch.labels.values, self.output_weight
        if weight_VD is None:
            return cross_entropy(self.project(hidden_ND), labels_N, smoothing=smoothing)
        return linear_cross_entropy(hidden_ND, weight_VD, labels_N, smoothing=smoothing, bias_V=self.logit_bias)


class StaticSeq2Seq(TextSeq2Seq, Generic[Growing, Static]):
    """A model whose steps also work on a state of static shapes, so that they can be captured as a CUDA graph."""

    @property
    def has_static_state(self) -> bool:
        """Whether this configuration of the model has one."""
        return True

    @abstractmethod
    def start(self, memory: Any, *, beams: int) -> Growing: ...

    @abstractmethod
    def step(self, tokens: Tensor, state: Growing | Static) -> Tensor: ...

    @abstractmethod
    def static_state(self, like: Growing | Static, *, sentences: int, slots: int, steps: int) -> Static:
        """Return a state for as many beams, of the same data type and on the same device, with room for so many of each."""

    # For a search on the device (`decoding.device_search`)

    @abstractmethod
    def decoder_shape(self) -> DecoderShape:
        """Return what a pool for this model must know."""

    @abstractmethod
    def write_memory(self, memory_MD: Tensor, pool: DecoderPool) -> None:
        """Write the keys and values of the encoder's output into a pool."""

    @abstractmethod
    def step_in_pool(self, tokens: Tensor, pool: DecoderPool, *, num_positions: int) -> Tensor:
        """Return the logits of each row's next token. The position of the last token is below `num_positions`."""


class Output(NamedTuple):
    """Tokens without BOS and EOS, and the mean log-probability that the model gives them."""

    ids: list[int]
    score: float


class WriteOptions(NamedTuple):
    """What is asked of a non-autoregressive model."""

    limits: Sequence[int]  # the most tokens of each sentence's outputs
    candidates: int = 1  # outputs per sentence
    iterations: int = 1  # passes of models that refine their output, the first included
    check: Callable[[], None] = lambda: None  # called before each pass; raises to stop


class NonAutoregressive(Model):
    """A model that outputs all tokens at once."""

    non_autoregressive = True

    @abstractmethod
    def encode(self, source: Ragged) -> Any:
        """Return what the decoder reads of the source; opaque to training and search."""

    @abstractmethod
    def write(self, memory: Any, options: WriteOptions) -> list[list[Output]]:
        """Return up to `options.candidates` outputs per sentence, the likeliest first."""

    def cannot_write(self, source_lengths: Indices, target_lengths: Indices) -> NDArray[np.bool_]:
        """Return True for pairs whose target is too long for the model to output. Lengths do not count EOS."""
        return np.zeros(len(source_lengths), dtype=np.bool_)
