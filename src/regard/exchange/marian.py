"""Marian's own models: model.npz, whose settings are inside of it, and a vocabulary (.yml, or a SentencePiece file, .spm).

Outputs begin with a vector of zeros, and there is no padding symbol. Positions are those of tensor2tensor. Matrices are
stored by columns. Marian's pre-norm layers, whose keys and values are not normed, are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sentencepiece
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import ConfigError
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
from regard.exchange.npz import parse_vocabulary, parse_yaml, read_npz
from regard.exchange.vocabulary import MAX_BYTES, Vocabulary, find_symbol, pair_of
from regard.models.encoder_decoder import TransformerConfig
from regard.storage.folder import Folder

FORMAT = "Marian"
SETTINGS = "special:model.yml"
DECODERS = ("decoder.yml", "config.yml", "decoder.yaml")
ACTIVATIONS = {"relu": "relu", "swish": "silu"}
VOCABULARIES = (".yml", ".yaml", ".json", ".spm", ".vocab", ".txt")
EPS = 1e-6
MAX_SETTINGS = 2**20


def names(config: TransformerConfig) -> Names:
    """Return the name of each of our parameters in an archive. Matrices there are transposed, except embeddings."""

    def modules(side: Side, number: int) -> Modules:
        at = f"{side}_l{number + 1}"
        return {
            "attention.project": tuple(f"{at}_self_?{one}" for one in "qkv"),
            "attention.output": (f"{at}_self_?o",),
            "around_attention.norm": (f"{at}_self_Wo_ln",),
            "feed_forward.inner": (f"{at}_ffn_?1",),
            "feed_forward.outer": (f"{at}_ffn_?2",),
            "around_feed_forward.norm": (f"{at}_ffn_ffn_ln",),
            "cross_attention.query": (f"{at}_context_?q",),
            "cross_attention.memory": tuple(f"{at}_context_?{one}" for one in "kv"),
            "cross_attention.output": (f"{at}_context_?o",),
            "around_cross_attention.norm": (f"{at}_context_Wo_ln",),
        }

    def tensor(module: str, kind: str) -> str:
        if module.endswith("_ln"):
            return f"{module}_{'scale' if kind == 'weight' else 'bias'}"
        return module.replace("?", "W" if kind == "weight" else "b")

    ends = {
        "target_embedding": ("Wemb" if config.tie == "all" else "decoder_Wemb",),
        "source_embedding": ("encoder_Wemb",),
        "output": ("decoder_ff_logit_out_W",),
        "output_bias": ("decoder_ff_logit_out_b",),
    }
    return parameter_names(config, modules=modules, ends=ends, tensor=tensor)


def fits(folder: Folder) -> bool:
    """Return whether the folder looks like one of these models."""
    return any(name.endswith(".npz") for name in folder.names())


def read(folder: Folder, tell: Tell) -> Imported:
    """Return the model of a folder."""
    found = [name for name in folder.names() if name.endswith(".npz")]
    if len(found) != 1:
        raise ConfigError(f"{folder.path} has the models {', '.join(found[:5])}; leave one of them in the folder")
    name = need_file(folder, found[0], why="it holds the weights")
    refuse_too_large(folder, name, tell=tell)
    origin = str(folder.path / name)
    arrays = read_npz(folder, name)
    if SETTINGS not in arrays:
        raise ConfigError(f"{origin} has no settings ({SETTINGS}), so it is not a model of Marian")
    text = arrays.pop(SETTINGS).tobytes()[:MAX_SETTINGS].decode(errors="replace")
    settings = Settings(parse_yaml(text.replace("\0", ""), origin=f"{origin}, {SETTINGS}"), origin=origin)
    table = model_table(settings)
    decoder = _decoder_settings(folder)
    source, target, models, files = _vocabularies(folder, decoder)
    config = transformer_config(table)
    tensors = _canonical(arrays, config, rows=len(target.symbols))
    weights = our_weights(names(config), tensors, (source.order(), target.order()), origin=origin)
    given = Settings(decoder, origin=str(folder.path))
    return Imported(
        FORMAT,
        table,
        weights,
        pair_of(source, target, models, origin=str(folder.path)),
        search_options(
            beam=given.integer("beam-size", 6),
            length_penalty=given.number("normalize", 1.0),
            length_penalty_kind="power",
        ),
        [name, *files],
        [] if models[0] is not None else ["There is no SentencePiece file: give symbols separated by spaces."],
    )


def model_table(settings: Settings) -> dict[str, Any]:
    """Return the options of our Transformer. What it cannot express is refused."""
    emb = settings.values.get("transformer-postprocess-emb")
    if emb not in (None, "", "d"):
        raise ConfigError(
            f"{settings.origin}: transformer-postprocess-emb is {emb!r}; norms on embeddings are not imported"
        )
    settings.refuse(
        {
            "type": "transformer",
            "transformer-preprocess": "",
            "transformer-postprocess": "dan",
            "transformer-postprocess-top": "",
            "transformer-decoder-autoreg": "self-attention",
            "transformer-no-projection": False,
            "transformer-no-bias": False,
            "transformer-rms-norm": False,
            "transformer-no-affine": False,
            "transformer-train-position-embeddings": False,
            "transformer-disable-position-embeddings": False,
            "transformer-tied-layers": [],
            "transformer-ffn-depth": 2,
            "transformer-decoder-ffn-depth": 0,
            "transformer-decoder-dim-ffn": 0,
            "transformer-pool": False,
            "transformer-depth-scaling": False,
            "lemma-dim-emb": 0,
            "factors-combine": "sum",
            "ulr": False,
            "output-omit-bias": False,
            "input-types": [],
        }
    )
    output = settings.flag("tied-embeddings", default=False)
    shared = settings.flag("tied-embeddings-all", default=False)
    shared = shared or (output and settings.flag("tied-embeddings-src", default=False))
    return {
        "width": settings.integer("dim-emb"),
        "num_layers": settings.integer("enc-depth"),
        "decoder_layers": settings.integer("dec-depth"),
        "num_heads": settings.integer("transformer-heads"),
        "hidden": settings.integer("transformer-dim-ffn"),
        "feed_forward": settings.one_of("transformer-ffn-activation", ACTIVATIONS, "swish"),
        "tie": "all" if shared else "target" if output else "none",
        "positions": "sinusoid-log",
        "norm_eps": EPS,
        "attention_bias": True,
        "output_bias": True,
    }


def _canonical(arrays: Mapping[str, NDArray[Any]], config: TransformerConfig, *, rows: int) -> dict[str, Tensor]:
    """Return the tensors as ours are laid out: matrices by rows, vectors without a first dimension."""
    tensors: dict[str, Tensor] = {}
    for name, array in arrays.items():
        if name.startswith("special:") or name in ("decoder_c_mask", "encoder_c_mask"):
            continue
        tensor = torch.from_numpy(np.array(array, dtype=np.float32))
        if "Wemb" in name:
            tensors[name] = tensor
        elif name == "decoder_ff_logit_out_Wt":
            tensors["decoder_ff_logit_out_W"] = tensor
        elif tensor.dim() == 2 and tensor.size(0) == 1 and ("_b" in name or "_ln_" in name):
            tensors[name] = tensor[0]
        else:
            tensors[name] = tensor.t() if tensor.dim() == 2 else tensor
    if "Wemb" in tensors and config.tie != "all":
        # Source and target share their embedding, but not the output layer.
        shared = tensors.pop("Wemb")
        tensors |= {"encoder_Wemb": shared, "decoder_Wemb": shared}
    tensors.setdefault("decoder_ff_logit_out_b", torch.zeros(rows))
    return tensors


# Vocabularies


def _decoder_settings(folder: Folder) -> dict[str, Any]:
    """Return the settings of the decoder, if the folder has a file of them."""
    name = next((one for one in DECODERS if folder.has_file(one)), None)
    if name is None:
        return {}
    return parse_yaml(folder.load_text(name, limit=MAX_SETTINGS), origin=str(folder.path / name))


def _vocabularies(
    folder: Folder, decoder: Mapping[str, Any]
) -> tuple[Vocabulary, Vocabulary, tuple[bytes | None, bytes | None], list[str]]:
    """Return both vocabularies, the SentencePiece files, and the names of all files."""
    given = decoder.get("vocabs")
    if isinstance(given, list) and len(given) == 2 and all(isinstance(one, str) for one in given):
        pair = [str(one).rsplit("/", 1)[-1] for one in given]
    else:
        found = [name for name in folder.names() if "vocab" in name and name.endswith(VOCABULARIES)]
        if len(found) != 1:
            raise ConfigError(
                f"{folder.path} has {len(found)} vocabularies; leave one, or name two as vocabs of {DECODERS[0]}"
            )
        pair = found * 2
    sides = []
    splits: list[bytes | None] = []
    for name, own in zip(pair, ("source.spm", "target.spm"), strict=True):
        need_file(folder, name, why="it gives symbols their ids")
        model = folder.load_bytes(own) if folder.has_file(own) else None
        if name.endswith(".spm"):
            model = folder.load_bytes(name)
            symbols = _subwords(model, str(folder.path / name))
        else:
            symbols = parse_vocabulary(folder.load_text(name, limit=MAX_BYTES), origin=str(folder.path / name))
        where = str(folder.path / name)
        unk, eos = find_symbol(symbols, ["<unk>"], origin=where), find_symbol(symbols, ["</s>"], origin=where)
        sides.append(Vocabulary(symbols, unk, None, eos))
        splits.append(model)
    files = list(dict.fromkeys([*pair, *(one for one in ("source.spm", "target.spm") if folder.has_file(one))]))
    return sides[0], sides[1], (splits[0], splits[1]), files


def _subwords(model: bytes, origin: str) -> list[str]:
    """Return the subwords of a SentencePiece file by their ids."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError as error:
        raise ConfigError(f"{origin} is not a SentencePiece file") from error
    return [processor.IdToPiece(id) for id in range(processor.GetPieceSize())]
