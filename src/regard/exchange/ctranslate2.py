"""CTranslate2's folders: config.json, model.bin and vocabularies. Integers are converted to float32 by their scales.

A Marian model that CTranslate2 converted begins with a vector of zeros, and has no padding symbol: unlike in Hugging Face's
folder, its logit does not take part in the softmax.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.errors import ConfigError
from regard.exchange.ctranslate2_file import read_model_file
from regard.exchange.imported import (
    Imported,
    Settings,
    Tell,
    load_settings,
    refuse_too_large,
    search_options,
    transformer_config,
)
from regard.exchange.names import Modules, Names, Side, our_weights, parameter_names
from regard.exchange.positions import matching_positions
from regard.exchange.vocabulary import Vocabulary, find_symbol, load_symbols, load_tokenizers
from regard.models.encoder_decoder import TransformerConfig
from regard.storage.folder import Folder
from regard.text.symbols import EOS

FORMAT = "CTranslate2"
CONFIG, MODEL = "config.json", "model.bin"
ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}
ACTIVATION_NAMES = ("ReLU", "GELU by tanh", "Swish", "GELU", "GELU by sigmoid", "tanh", "sigmoid")
COMPUTED = ("encoder/position_encodings/encodings", "decoder/position_encodings/encodings")
EPS = 1e-5  # where the configuration has none
# By `tie`: matrices that repeat another one.
TIED: dict[str, list[str]] = {
    "all": ["encoder/embeddings_0/weight", "decoder/projection/weight"],
    "target": ["decoder/projection/weight"],
    "none": [],
}


def names(config: TransformerConfig) -> Names:
    """Return the name of each of our parameters in model.bin."""

    def modules(side: Side, number: int) -> Modules:
        at = f"{side}/layer_{number}"
        return {
            "attention.project": (f"{at}/self_attention/linear_0",),
            "attention.output": (f"{at}/self_attention/linear_1",),
            "around_attention.norm": (f"{at}/self_attention/layer_norm",),
            "feed_forward.inner": (f"{at}/ffn/linear_0",),
            "feed_forward.outer": (f"{at}/ffn/linear_1",),
            "around_feed_forward.norm": (f"{at}/ffn/layer_norm",),
            "cross_attention.query": (f"{at}/attention/linear_0",),
            "cross_attention.memory": (f"{at}/attention/linear_1",),
            "cross_attention.output": (f"{at}/attention/linear_2",),
            "around_cross_attention.norm": (f"{at}/attention/layer_norm",),
        }

    def tensor(module: str, kind: str) -> str:
        if module.endswith("norm"):
            return f"{module}/{'gamma' if kind == 'weight' else 'beta'}"
        return f"{module}/{kind}"

    ends = {
        "target_embedding": ("decoder/embeddings/weight",),
        "source_embedding": ("encoder/embeddings_0/weight",),
        "output": ("decoder/projection/weight",),
        "output_bias": ("decoder/projection/bias",),
        "source_positions.learned": ("encoder/position_encodings/encodings",),
        "target_positions.learned": ("decoder/position_encodings/encodings",),
        "encoder_norm": ("encoder/layer_norm",),
        "decoder_norm": ("decoder/layer_norm",),
    }
    return parameter_names(config, modules=modules, ends=ends, tensor=tensor)


def fits(folder: Folder) -> bool:
    """Return whether the folder looks like one of these models."""
    return {CONFIG, MODEL} <= set(folder.names())


def read(folder: Folder, tell: Tell) -> Imported:
    """Return the model of a folder."""
    settings = Settings(load_settings(folder, CONFIG), origin=str(folder.path / CONFIG))
    refuse_too_large(folder, MODEL, tell=tell)
    origin = str(folder.path / MODEL)
    tensors, scalars = read_model_file(folder, MODEL)
    source, target, table = _vocabularies(folder, settings, scalars)
    table |= _model_table(settings, tensors, scalars, origin=origin)
    if target.bos is None:
        table["output_bias"] = True
    if table["output_bias"]:
        rows = tensors["decoder/projection/weight"].size(0)
        tensors.setdefault("decoder/projection/bias", torch.zeros(rows))
    config = transformer_config(table)
    known = [*COMPUTED, *TIED[config.tie]]
    orders = source.order(), target.order()
    weights = our_weights(names(config), tensors, orders, known=known, origin=origin)
    tokenizers, files, notes = load_tokenizers(folder, source, target)
    return Imported(
        FORMAT,
        table,
        weights,
        tokenizers,
        search_options(beam=2, length_penalty=1.0, length_penalty_kind="power"),
        [CONFIG, MODEL, *files],
        notes,
    )


# Settings


def _model_table(
    settings: Settings, tensors: Mapping[str, Tensor], scalars: Mapping[str, int | float], *, origin: str
) -> dict[str, Any]:
    """Return the options of our Transformer. What it cannot express is refused."""
    given = Settings(scalars, origin=origin)
    for side in ("encoder", "decoder"):
        given.refuse(
            {
                f"{side}/alibi": 0,
                f"{side}/scale_alibi": 0,
                f"{side}/alibi_use_positive_positions": 0,
                f"{side}/multi_query_attention": 0,
                f"{side}/embeddings_merge": 0,
                f"{side}/sliding_window": 0,
                f"{side}/scale_outputs": 0,
                f"{side}/final_logit_softcapping": 0,
            }
        )
    known = {"alibi", "scale_alibi", "alibi_use_positive_positions", "multi_query_attention", "embeddings_merge"}
    known |= {"sliding_window", "scale_outputs", "final_logit_softcapping", "num_heads", "pre_norm", "activation"}
    known |= {"scale_embeddings", "alignment_layer", "alignment_heads", "start_from_zero_embedding"}
    for name in scalars:
        if name.split("/", 1)[-1] not in known:
            raise ConfigError(f"{origin} has the setting {name[:80]!r}, which has no counterpart here")
    activation = _both(scalars, "activation", origin)
    if activation not in ACTIVATIONS:
        shown = ACTIVATION_NAMES[int(activation)] if 0 <= activation < len(ACTIVATION_NAMES) else activation
        raise ConfigError(f"{origin}: the activation is {shown}, which is not imported; ReLU, Swish and GELU are")
    embedding, output = tensors.get("decoder/embeddings/weight"), tensors.get("decoder/projection/weight")
    if embedding is None or output is None or "encoder/embeddings_0/weight" not in tensors:
        raise ConfigError(f"{origin} has no embeddings or no output layer, so it is not a translation model")
    width = embedding.size(1)
    pre_norm = bool(_both(scalars, "pre_norm", origin))
    inner = tensors.get("encoder/layer_0/ffn/linear_0/weight")
    if inner is None:
        raise ConfigError(f"{origin} has no feed-forward layer in its encoder")
    tied = tensors["decoder/projection/weight"] is embedding
    return {
        "width": width,
        "num_layers": _count_layers(tensors, "encoder"),
        "decoder_layers": _count_layers(tensors, "decoder"),
        "num_heads": int(_both(scalars, "num_heads", origin)),
        "hidden": inner.size(0),
        "norm_order": "pre" if pre_norm else "post",
        "final_norm": "encoder/layer_norm/gamma" in tensors,
        "norm_eps": settings.number("layer_norm_epsilon", EPS) if settings.values.get("layer_norm_epsilon") else EPS,
        "feed_forward": ACTIVATIONS[int(activation)],
        "tie": "none" if not tied else "all" if tensors["encoder/embeddings_0/weight"] is embedding else "target",
        "scale_embeddings": _scaled(scalars, width, origin),
        "attention_bias": "encoder/layer_0/self_attention/linear_0/bias" in tensors,
        "output_bias": "decoder/projection/bias" in tensors,
        **_positions(tensors, width, origin),
    }


def _positions(tensors: Mapping[str, Tensor], width: int, origin: str) -> dict[str, Any]:
    """Return the options for positions. Without a table of them, CTranslate2 computes sinusoids from position 1 on."""
    tables = [tensors.get(f"{side}/position_encodings/encodings") for side in ("encoder", "decoder")]
    if tables[0] is None or tables[1] is None:
        return {"positions": "sinusoid-log", "first_position": 1}
    if tables[0].dim() != 2 or tables[0].shape != tables[1].shape or tables[0].size(1) != width:
        raise ConfigError(f"{origin}: encoder and decoder have different positions, which is not imported")
    found = matching_positions(tables[0]) if torch.equal(tables[0], tables[1]) else None
    return found or {"positions": "learned", "max_positions": tables[0].size(0)}


def _both(scalars: Mapping[str, int | float], name: str, origin: str) -> int | float:
    """Return the value of a setting that encoder and decoder must share."""
    values = [scalars.get(f"{side}/{name}") for side in ("encoder", "decoder")]
    if values[0] is None or values[0] != values[1]:
        raise ConfigError(f"{origin}: {name} is {values[0]} in the encoder and {values[1]} in the decoder")
    return values[0]


def _scaled(scalars: Mapping[str, int | float], width: int, origin: str) -> bool:
    """Return whether embeddings are multiplied by the root of the width. The setting is a flag or the factor."""
    factor = _both(scalars, "scale_embeddings", origin)
    if isinstance(factor, int):
        return bool(factor)
    if factor == 1.0:
        return False
    if math.isclose(factor, math.sqrt(width), rel_tol=1e-5):
        return True
    raise ConfigError(
        f"{origin}: embeddings are multiplied by {factor}, which is not imported; 1 and the root of {width} are"
    )


def _count_layers(tensors: Mapping[str, Tensor], side: str) -> int:
    return len({found[1] for name in tensors if (found := re.match(rf"{side}/layer_([0-9]+)/", name))})


def _vocabularies(
    folder: Folder, settings: Settings, scalars: Mapping[str, int | float]
) -> tuple[Vocabulary, Vocabulary, dict[str, Any]]:
    """Return both vocabularies, and the options that follow from their symbols."""
    settings.refuse({"add_source_bos": False})
    shared = load_symbols(folder, "shared_vocabulary")
    found = [shared or load_symbols(folder, f"{side}_vocabulary") for side in ("source", "target")]
    lists = [symbols for symbols in found if symbols is not None]
    if len(lists) < 2:
        raise ConfigError(
            f"{folder.path} has no shared_vocabulary.json, nor source_vocabulary.json and target_vocabulary.json"
        )
    eos_token, unk_token = settings.text("eos_token", "</s>"), settings.text("unk_token", "<unk>")
    start_token = settings.values.get("decoder_start_token")
    zero = bool(scalars.get("decoder/start_from_zero_embedding"))
    if not zero and not isinstance(start_token, str):
        raise ConfigError(
            f"{settings.origin}: decoder_start_token is not set, so outputs begin with symbols that users give; "
            "such models are not imported"
        )
    sides = []
    table: dict[str, Any] = {}
    for side, symbols in zip(("source", "target"), lists, strict=True):
        origin = f"{folder.path} ({side} vocabulary)"
        unk, eos = (find_symbol(symbols, [one], origin=origin) for one in (unk_token, eos_token))
        bos: int | None = None
        if not zero:
            start = find_symbol(symbols, [str(start_token)], origin=origin) if side == "target" else None
            bos = start if start not in (None, eos) else None
            if side == "target" and start == eos:
                table["start_id"] = EOS
            if bos is None:
                spare = [one for one in ("<blank>", "<pad>", settings.text("bos_token", "<s>")) if one in symbols]
                bos = find_symbol(symbols, spare, origin=origin) if spare else None
        sides.append(Vocabulary(symbols, unk, bos, eos))
    if shared is not None:
        sides[0] = sides[1]
    # Models of OpenNMT-py read no EOS. Others do, whether CTranslate2 adds it or their tokenizer did.
    ends = settings.flag("add_source_eos", default=False) or zero or start_token == eos_token
    return sides[0], sides[1], {**table, "source_eos": ends}
