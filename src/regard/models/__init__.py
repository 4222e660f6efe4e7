"""Model families by name, and models built from a recipe's `[model]` table. `tests/laws` covers every built-in family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.config import Struct
from regard.config.transformer import PRESETS as TRANSFORMER_PRESETS
from regard.config.transformer import EncoderConfig, TransformerConfig
from regard.models.base import Model
from regard.models.binary import BinaryLstm, BinaryLstmConfig, BinaryTransformer, BinaryTransformerConfig
from regard.models.bytenet import PRESETS as BYTENET_PRESETS
from regard.models.bytenet import ByteNet, ByteNetConfig
from regard.models.captioner import Captioner, CaptionerConfig
from regard.models.cmlm import Cmlm, CmlmConfig
from regard.models.convs2s import PRESETS as CONVS2S_PRESETS
from regard.models.convs2s import ConvS2S, ConvS2SConfig
from regard.models.ctc import Ctc, CtcConfig
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.entnet import EntNet, EntNetConfig
from regard.models.han import Han, HanConfig
from regard.models.masked_lm import MaskedLm
from regard.models.nat import Nat, NatConfig
from regard.models.ntm import Ntm, NtmConfig
from regard.models.pointer import Pointer, PointerConfig
from regard.models.pointer_lstm import PointerLstm, PointerLstmConfig
from regard.models.reader import Reader, ReaderConfig
from regard.models.rnn import PRESETS as RNN_PRESETS
from regard.models.rnn import Rnn, RnnConfig
from regard.models.tagger import Classifier, Tagger, TaggerConfig
from regard.models.transformer import Transformer
from regard.models.word_encoder import WordConfig
from regard.registry import Registry
from regard.toml import with_preset


class Family(NamedTuple):
    """A model family: the struct of its options, what builds a model from it, and named sets of options."""

    config: type[Struct]
    build: Callable[..., Model]
    presets: Mapping[str, Mapping[str, object]] = {}
    task: str = "translation"


MODELS: Registry[Family] = Registry("model")


def register_model(name: str, family: Family, *, replace: bool = False) -> None:
    """Let recipes choose the family as `model.kind`."""
    MODELS.register(name, family, replace=replace)


register_model("transformer", Family(TransformerConfig, Transformer, TRANSFORMER_PRESETS))
register_model("rnn", Family(RnnConfig, Rnn, RNN_PRESETS))
register_model("convs2s", Family(ConvS2SConfig, ConvS2S, CONVS2S_PRESETS))
register_model("bytenet", Family(ByteNetConfig, ByteNet, BYTENET_PRESETS))
register_model("nat", Family(NatConfig, Nat, TRANSFORMER_PRESETS))
register_model("cmlm", Family(CmlmConfig, Cmlm, TRANSFORMER_PRESETS))
register_model("ctc", Family(CtcConfig, Ctc, TRANSFORMER_PRESETS))
register_model("tagger", Family(TaggerConfig, Tagger, TRANSFORMER_PRESETS, task="tagging"))
register_model("classifier", Family(EncoderConfig, Classifier, TRANSFORMER_PRESETS, task="classification"))
register_model("masked-lm", Family(WordConfig, MaskedLm, TRANSFORMER_PRESETS, task="masked-lm"))
register_model("han", Family(HanConfig, Han, task="classification"))
register_model("pointer", Family(PointerConfig, Pointer, TRANSFORMER_PRESETS, task="pointing"))
register_model("captioner", Family(CaptionerConfig, Captioner, TRANSFORMER_PRESETS, task="captioning"))
register_model("entnet", Family(EntNetConfig, EntNet, task="question-answering"))
register_model("reader", Family(ReaderConfig, Reader, TRANSFORMER_PRESETS, task="question-answering"))
register_model("pointer-lstm", Family(PointerLstmConfig, PointerLstm, task="pointing"))
register_model("ntm", Family(NtmConfig, Ntm, task="binary-sequences"))
register_model("binary-lstm", Family(BinaryLstmConfig, BinaryLstm, task="binary-sequences"))
register_model(
    "binary-transformer",
    Family(BinaryTransformerConfig, BinaryTransformer, TRANSFORMER_PRESETS, task="binary-sequences"),
)
register_model("decoder", Family(DecoderConfig, Decoder, TRANSFORMER_PRESETS, task="language-modelling"))


def model_config(table: Mapping[str, Any]) -> tuple[str, Struct]:
    """Return the family's name and its options: defaults, then the preset, then the table's own keys."""
    values = dict(table)
    kind = values.pop("kind", None)
    family = MODELS.get(kind, where="model.kind")
    assert isinstance(kind, str), kind
    return kind, with_preset(family.config, values, family.presets, where="model")


def build_model(table: Mapping[str, Any], **sizes: int) -> Model:
    """Return a model with fresh weights, as a recipe's `[model]` table describes it. Its task names the sizes it needs."""
    kind, config = model_config(table)
    return MODELS.get(kind, where="model.kind").build(config, **sizes)


def expected_shapes(table: Mapping[str, Any], **sizes: int) -> dict[str, torch.Size]:
    """Return the shape of every parameter of the described model, tied ones once, without allocating them."""
    with torch.device("meta"), _WithoutInitialization():
        model = build_model(table, **sizes)
    return {name: parameter.shape for name, parameter in model.named_parameters()}


class _WithoutInitialization(TorchFunctionMode):
    """Skips `normal_` and similar: on the meta device they have no effect, but import much of PyTorch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, given = getattr(func, "__name__", ""), [*args, *(kwargs or {}).values()]
        in_place = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
        if in_place and isinstance(given[0], Tensor):
            return given[0]
        return func(*args, **(kwargs or {}))
