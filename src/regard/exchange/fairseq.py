"""fairseq's Transformers: a checkpoint (.pt), and dict.LANGUAGE.txt of both languages next to it.

Outputs begin with EOS. Positions are those of tensor2tensor, the first one is number 2. Padding is never output, and becomes
BOS here; <s> is an ordinary symbol.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.errors import ConfigError
from regard.exchange.huggingface import layer_modules
from regard.exchange.imported import (
    Imported,
    Settings,
    Tell,
    need_file,
    refuse_too_large,
    search_options,
    transformer_config,
)
from regard.exchange.names import Modules, Names, Side, our_weights, parameter_names
from regard.exchange.torch_file import read_torch_file, tensors_of
from regard.exchange.vocabulary import MAX_BYTES, Vocabulary, load_tokenizers
from regard.models.encoder_decoder import TransformerConfig
from regard.storage.folder import Folder
from regard.text.symbols import EOS

FORMAT = "fairseq"
DICTIONARY = re.compile(r"dict\.(.+)\.txt")
CHECKPOINTS = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt", "checkpoint.pt")
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu"}
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
PAD, END, UNKNOWN = 1, 2, 3
FIRST_POSITION = PAD + 1  # positions count from behind the padding symbol
EPS = 1e-5  # of torch.nn.LayerNorm
# Constants that some versions store.
COMPUTED = re.compile(r"(encoder|decoder)\.(version|embed_positions\._float_tensor|embed_positions\.weights)")
# By `tie`: matrices that repeat another one.
TIED: dict[str, list[str]] = {
    "all": ["encoder.embed_tokens.weight", "decoder.output_projection.weight"],
    "target": ["decoder.output_projection.weight"],
    "none": [],
}


def names(config: TransformerConfig) -> Names:
    """Return the name of each of our parameters in a checkpoint."""
    ends = {
        "target_embedding": ("decoder.embed_tokens.weight",),
        "source_embedding": ("encoder.embed_tokens.weight",),
        "output": ("decoder.output_projection.weight",),
        "source_positions.learned": ("encoder.embed_positions.weight",),
        "target_positions.learned": ("decoder.embed_positions.weight",),
        "encoder_norm": ("encoder.layer_norm",),
        "decoder_norm": ("decoder.layer_norm",),
    }

    def modules(side: Side, number: int) -> Modules:
        return layer_modules(f"{side}.layers.{number}")

    return parameter_names(config, modules=modules, ends=ends, tensor=lambda module, kind: f"{module}.{kind}")


def fits(folder: Folder) -> bool:
    """Return whether the folder looks like one of these models."""
    return any(map(DICTIONARY.fullmatch, folder.names())) and any(name.endswith(".pt") for name in folder.names())


def read(folder: Folder, tell: Tell) -> Imported:
    """Return the model of a folder."""
    name = checkpoint_name(folder)
    refuse_too_large(folder, name, tell=tell)
    origin = str(folder.path / name)
    value = read_torch_file(folder, name, only=("model", "args", "cfg"))
    settings = Settings(_arguments(value, origin), origin=origin)
    table = model_table(settings)
    languages = _languages(value, settings, folder)
    files = [need_file(folder, f"dict.{one}.txt", why="it gives symbols their ids") for one in languages]
    source, target = (_vocabulary(folder, one) for one in files)
    tensors = _canonical(tensors_of(value.get("model"), origin=origin), table)
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
        [name, *files, *more],
        notes,
    )


def checkpoint_name(folder: Folder) -> str:
    """Return the name of the checkpoint: the usual one, or the only one."""
    found = [name for name in folder.names() if name.endswith(".pt")]
    usual = next((name for name in CHECKPOINTS if name in found), None)
    if usual is None and len(found) != 1:
        raise ConfigError(f"{folder.path} has the checkpoints {', '.join(found[:5])}; leave one of them in the folder")
    return need_file(folder, usual or found[0], why="it holds the weights")


def model_table(settings: Settings) -> dict[str, Any]:
    """Return the options of our Transformer. What it cannot express is refused."""
    kind = settings.text("arch", settings.text("_name", "transformer"))
    if not kind.startswith("transformer") or "_lm" in kind:
        raise ConfigError(
            f"{settings.origin}: arch is {kind!r}, which is not imported; Transformers for translation are"
        )
    settings.refuse(
        {
            "layernorm_embedding": False,
            "no_decoder_final_norm": False,
            "adaptive_softmax_cutoff": None,
            "adaptive_input": False,
            "cross_self_attention": False,
            "no_cross_attention": False,
            "encoder_layers_to_keep": None,
            "decoder_layers_to_keep": None,
            "character_embeddings": False,
            "lang_tok_replacing_bos_eos": False,
            "no_token_positional_embeddings": False,
        }
    )
    width = settings.same("encoder_embed_dim", "decoder_embed_dim")
    for name in ("decoder_output_dim", "decoder_input_dim"):
        settings.refuse({name: width})
    before = [settings.flag(f"{side}_normalize_before", default=False) for side in ("encoder", "decoder")]
    learned = [settings.flag(f"{side}_learned_pos", default=False) for side in ("encoder", "decoder")]
    if before[0] != before[1] or learned[0] != learned[1]:
        raise ConfigError(
            f"{settings.origin}: norms or positions differ between encoder and decoder; both must be alike"
        )
    share_all = settings.flag("share_all_embeddings", default=False)
    share_output = settings.flag("share_decoder_input_output_embed", default=False)
    positions = {"positions": "sinusoid-log", "first_position": FIRST_POSITION}
    if learned[0]:
        positions = {
            "positions": "learned",
            "max_positions": settings.same("max_source_positions", "max_target_positions"),
        }
    return {
        "width": width,
        "num_layers": settings.integer("encoder_layers"),
        "decoder_layers": settings.integer("decoder_layers"),
        "num_heads": settings.same("encoder_attention_heads", "decoder_attention_heads"),
        "hidden": settings.same("encoder_ffn_embed_dim", "decoder_ffn_embed_dim"),
        "dropout": settings.number("dropout", 0.1),
        "attention_dropout": settings.number("attention_dropout", 0.0),
        "activation_dropout": settings.number("activation_dropout", 0.0),
        "feed_forward": settings.one_of("activation_fn", ACTIVATIONS, "relu"),
        "norm_order": "pre" if before[0] else "post",
        "norm_eps": EPS,
        "tie": "all" if share_all else "target" if share_output else "none",
        "scale_embeddings": not settings.flag("no_scale_embedding", default=False),
        "attention_bias": True,
        "start_id": EOS,
        **positions,
    }


def _arguments(value: Any, origin: str) -> Mapping[str, Any]:
    """Return the arguments of the model: `args`, or `cfg.model` in newer checkpoints."""
    if isinstance(value, dict):
        given = value.get("args")
        cfg = value.get("cfg")
        if not given and isinstance(cfg, dict):
            given = cfg.get("model")
        if isinstance(given, dict):
            return given
    raise ConfigError(f"{origin} has neither args nor cfg.model, so it is not a checkpoint of fairseq")


def _languages(value: Any, settings: Settings, folder: Folder) -> tuple[str, str]:
    """Return the names of both languages, which those of the dictionaries contain."""
    cfg = value.get("cfg")
    task = cfg.get("task") if isinstance(cfg, dict) else None
    given = {**(task if isinstance(task, dict) else {}), **{key: one for key, one in settings.values.items() if one}}
    found = [given.get("source_lang"), given.get("target_lang")]
    if not all(isinstance(one, str) and one and "/" not in one for one in found):
        raise ConfigError(f"{settings.origin} does not say source_lang and target_lang, which name the dictionaries")
    return str(found[0]), str(found[1])


def _vocabulary(folder: Folder, name: str) -> Vocabulary:
    """Return a dictionary: a symbol and its count per line, behind the special symbols."""
    symbols = list(SPECIAL)
    for number, line in enumerate(folder.load_text(name, limit=MAX_BYTES).removesuffix("\n").split("\n"), start=1):
        symbol, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not symbol or not count.strip().isdigit():
            raise ConfigError(f"{folder.path / name}, line {number}, is not a symbol and its count")
        symbols.append(symbol)
    return Vocabulary(symbols, UNKNOWN, PAD, END)


def _canonical(tensors: dict[str, Tensor], table: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors under their newest names, without constants."""
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if COMPUTED.fullmatch(name):
            continue
        if name == "decoder.embed_out":
            result["decoder.output_projection.weight"] = tensor
        elif ".in_proj_" in name:
            # Until 0.7 the projections of queries, keys and values were one matrix.
            module, kind = name.split(".in_proj_")
            for letter, part in zip("qkv", tensor.chunk(3), strict=True):
                result[f"{module}.{letter}_proj.{kind}"] = part
        elif name.endswith("embed_positions.weight") and table["positions"] == "learned":
            result[name] = tensor[FIRST_POSITION:]
        else:
            result[name] = tensor
    return result
