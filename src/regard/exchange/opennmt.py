"""OpenNMT-py's Transformers: one checkpoint (.pt) with options, vocabularies, model and generator.

Layers are pre-norm. The encoder reads no EOS. Version 3 writes vocabularies as lists; those of earlier versions are objects
of torchtext, which are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.errors import ConfigError
from regard.exchange.fairseq import checkpoint_name
from regard.exchange.imported import Imported, Settings, Tell, refuse_too_large, search_options, transformer_config
from regard.exchange.names import Modules, Names, Side, our_weights, parameter_names
from regard.exchange.positions import matching_positions
from regard.exchange.torch_file import read_torch_file, tensors_of
from regard.exchange.vocabulary import Vocabulary, find_symbol, load_tokenizers
from regard.models.encoder_decoder import TransformerConfig
from regard.storage.folder import Folder
from regard.text.symbols import EOS

FORMAT = "OpenNMT-py"
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu"}
EMBEDDING = "{}.embeddings.make_embedding.emb_luts.0.weight"
POSITIONS = "{}.embeddings.make_embedding.pe.pe"
PARTS = ("model", "generator", "vocab", "opt")
EPS = 1e-6
# By `tie`: matrices that repeat another one.
TIED: dict[str, list[str]] = {
    "all": [EMBEDDING.format("encoder"), "generator.weight"],
    "target": ["generator.weight"],
    "none": [],
}


def names(config: TransformerConfig) -> Names:
    """Return the name of each of our parameters in a checkpoint, the generator's with that word in front."""

    def modules(side: Side, number: int) -> Modules:
        at = f"encoder.transformer.{number}" if side == "encoder" else f"decoder.transformer_layers.{number}"
        return {
            "attention.project": tuple(f"{at}.self_attn.linear_{one}" for one in ("query", "keys", "values")),
            "attention.output": (f"{at}.self_attn.final_linear",),
            "around_attention.norm": (f"{at}.layer_norm" if side == "encoder" else f"{at}.layer_norm_1",),
            "feed_forward.inner": (f"{at}.feed_forward.w_1",),
            "feed_forward.outer": (f"{at}.feed_forward.w_2",),
            "around_feed_forward.norm": (f"{at}.feed_forward.layer_norm",),
            "cross_attention.query": (f"{at}.context_attn.linear_query",),
            "cross_attention.memory": tuple(f"{at}.context_attn.linear_{one}" for one in ("keys", "values")),
            "cross_attention.output": (f"{at}.context_attn.final_linear",),
            "around_cross_attention.norm": (f"{at}.layer_norm_2",),
        }

    ends = {
        "target_embedding": (EMBEDDING.format("decoder"),),
        "source_embedding": (EMBEDDING.format("encoder"),),
        "output": ("generator.weight",),
        "output_bias": ("generator.bias",),
        "encoder_norm": ("encoder.layer_norm",),
        "decoder_norm": ("decoder.layer_norm",),
    }
    return parameter_names(config, modules=modules, ends=ends, tensor=lambda module, kind: f"{module}.{kind}")


def fits(folder: Folder) -> bool:
    """Return whether the folder looks like one of these models."""
    return any(name.endswith(".pt") for name in folder.names())


def read(folder: Folder, tell: Tell) -> Imported:
    """Return the model of a folder."""
    name = checkpoint_name(folder)
    refuse_too_large(folder, name, tell=tell)
    origin = str(folder.path / name)
    value = read_torch_file(folder, name, only=PARTS)
    if not isinstance(value, dict) or not all(isinstance(value.get(part), dict) for part in PARTS):
        raise ConfigError(f"{origin} does not have {', '.join(PARTS)}, so it is not a checkpoint of OpenNMT-py")
    settings = Settings(value["opt"], origin=origin)
    tensors = _tensors(value, origin)
    table = model_table(settings, tensors)
    start = settings.values.get("decoder_start_token") or value["vocab"].get("decoder_start_token") or "<s>"
    source, target = (_vocabulary(value["vocab"], side, str(start), origin) for side in ("src", "tgt"))
    if start == target.symbols[target.eos]:
        table["start_id"] = EOS
    config = transformer_config(table)
    orders = source.order(), target.order()
    weights = our_weights(names(config), tensors, orders, known=TIED[config.tie], origin=origin)
    tokenizers, more, notes = load_tokenizers(folder, source, target)
    return Imported(
        FORMAT,
        table,
        weights,
        tokenizers,
        search_options(beam=5, length_penalty=1.0, length_penalty_kind="power"),
        [name, *more],
        notes,
    )


def model_table(settings: Settings, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return the options of our Transformer. What it cannot express is refused. Tables of positions are removed."""
    settings.refuse(
        {
            "encoder_type": "transformer",
            "decoder_type": "transformer",
            "self_attn_type": "scaled-dot",
            "max_relative_positions": 0,
            "copy_attn": False,
            "parallel_residual": False,
            "multiquery": False,
            "num_kv": 0,
            "sliding_window": 0,
            "num_experts": 0,
            "generator_function": "softmax",
            "layer_norm": "standard",
            "freeze_word_vecs_enc": False,
        }
    )
    table = tensors.get(EMBEDDING.format("decoder"))
    if table is None or table.dim() != 2:
        raise ConfigError(f"{settings.origin} has no embeddings of target words, so it is not a translation model")
    width = table.size(1)
    heads = settings.integer("heads", 8)
    encoded = settings.flag("position_encoding", default=True)
    positions: dict[str, Any] = {"positions": "none"}
    tables = [tensors.pop(POSITIONS.format(side), None) for side in ("encoder", "decoder")]
    if encoded:
        found = [matching_positions(one.reshape(-1, width)) for one in tables if one is not None]
        positions = {"positions": "sinusoid", "first_position": 0} if not found else found[0] or {}
        if not positions or found[1:] not in ([], [positions]):
            raise ConfigError(f"{settings.origin}: the positions are of no known formula, which is not imported")
    shared = _tied(tensors, EMBEDDING.format("encoder"), EMBEDDING.format("decoder"))
    tied = _tied(tensors, EMBEDDING.format("decoder"), "generator.weight")
    inner = tensors.get("encoder.transformer.0.feed_forward.w_1.weight")
    return {
        "width": width,
        "num_layers": settings.integer("enc_layers"),
        "decoder_layers": settings.integer("dec_layers"),
        "num_heads": heads,
        "hidden": settings.integer("transformer_ff", None if inner is None else inner.size(0)),
        "dropout": _first(settings.values.get("dropout"), 0.1),
        "attention_dropout": _first(settings.values.get("attention_dropout"), 0.0),
        "feed_forward": settings.one_of("pos_ffn_activation_fn", ACTIVATIONS, "relu"),
        "norm_order": "pre",
        "norm_eps": settings.number("norm_eps", EPS),
        "tie": "none" if not tied else "all" if shared else "target",
        "scale_embeddings": encoded,
        "attention_bias": "encoder.transformer.0.self_attn.linear_query.bias" in tensors,
        "output_bias": "generator.bias" in tensors,
        "source_eos": False,
        **positions,
    }


def _first(value: Any, default: float) -> float:
    """Return a rate, of which there may be one per stage of training."""
    value = value[0] if isinstance(value, list) and value else value
    return float(value) if isinstance(value, int | float) and 0 <= value < 1 else default


def _tied(tensors: Mapping[str, Tensor], one: str, other: str) -> bool:
    """Return whether two matrices are the same, so that one of them is enough."""
    return one in tensors and other in tensors and torch.equal(tensors[one], tensors[other])


def _tensors(value: Mapping[str, Any], origin: str) -> dict[str, Tensor]:
    """Return the tensors of the model and of the generator, whose names have been shorter since version 3."""
    tensors = tensors_of(value["model"], origin=origin)
    for name, tensor in tensors_of(value["generator"], origin=origin).items():
        tensors[f"generator.{name.removeprefix('0.')}"] = tensor
    for name in [name for name in tensors if name.endswith(".weight") and ".feed_forward.w_" in name]:
        # Ours always have biases; those of version 3 may have none.
        tensors.setdefault(name.replace(".weight", ".bias"), tensors[name].new_zeros(tensors[name].size(0)))
    return tensors


def _vocabulary(given: Mapping[str, Any], side: str, start: str, origin: str) -> Vocabulary:
    symbols: Sequence[Any] | None = given.get(side)
    if given.get("src_feats"):
        raise ConfigError(f"{origin} has features of source words (src_feats), which are not imported")
    if not isinstance(symbols, list) or not all(isinstance(one, str) for one in symbols):
        raise ConfigError(f"{origin} has no list of symbols vocab.{side}; OpenNMT-py writes one since version 3")
    where = f"{origin} ({side})"
    unk, eos = find_symbol(symbols, ["<unk>"], origin=where), find_symbol(symbols, ["</s>"], origin=where)
    wanted = [one for one in (start, "<s>", "<blank>", "<pad>") if one in symbols and one != symbols[eos]]
    if side == "tgt" and start in symbols and start != symbols[eos]:
        wanted = [start]
    elif start == symbols[eos]:
        wanted = [one for one in ("<blank>", "<pad>", "<s>") if one in symbols]
    bos = find_symbol(symbols, wanted, origin=where) if wanted else None
    return Vocabulary(symbols, unk, bos, eos)
