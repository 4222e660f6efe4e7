"""Writing a model as a folder of CTranslate2: config.json, model.bin, vocabularies, and the SentencePiece files."""

from __future__ import annotations

import re
from typing import Any

import torch

from regard.errors import ConfigError, require
from regard.exchange.ctranslate2 import ACTIVATIONS, TIED, names
from regard.exchange.names import to_theirs
from regard.exchange.portable import END, UNKNOWN, Portable, has_final_norm, refuse_options, refuse_other_heads
from regard.nn.positions import is_sinusoid, sinusoids
from regard.storage.folder import Folder

TARGET = "CTranslate2"
QUANTIZATIONS = {"float32": None, "float16": "float16", "int8": "int8"}
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in ACTIVATIONS.items()} | {"swiglu": 2}
FITTING: dict[str, tuple[Any, ...]] = {
    "feed_forward": tuple(THEIR_ACTIVATIONS),
    "qk_norm": (False,),
    "window": (None,),
    "copy": (False,),
}


def refuse(model: Portable, weights: str) -> None:
    """Raise ConfigError for what a folder of this kind cannot express."""
    refuse_options(model.config, TARGET, FITTING)
    refuse_other_heads(model.config, TARGET)
    if model.config.norm_order == "post" and has_final_norm(model.config):
        raise ConfigError(f"model.final_norm is true after post-norm layers, which {TARGET} cannot express")


def write(model: Portable, folder: Folder, weights: str) -> None:
    """Write the files that CTranslate2 reads, and the SentencePiece files."""
    specs = require("ctranslate2.specs", extra="ctranslate2")
    config = model.config
    spec = specs.TransformerSpec(
        _stack(specs.TransformerEncoderSpec, model), _stack(specs.TransformerDecoderSpec, model)
    )
    theirs = to_theirs(_names(model), model.weights)
    shared = "decoder/embeddings/weight" if config.tie != "none" else "decoder/projection/weight"
    for tied in TIED[config.tie]:
        theirs[tied] = theirs[shared]
    if config.positions != "learned":
        table = torch.zeros(model.num_positions, config.width)
        if is_sinusoid(config.positions):
            table = sinusoids(model.num_positions, config.width, kind=config.positions, first=config.first_position)
        sides = ("encoder", "decoder") if config.positions != "rotary" else ("encoder",)
        theirs |= {f"{side}/position_encodings/encodings": table for side in sides}
    for name, tensor in theirs.items():
        _set(spec, name, tensor.numpy())
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = config.scale_embeddings
    spec.config.unk_token, spec.config.eos_token, spec.config.bos_token = UNKNOWN, END, model.start
    spec.config.decoder_start_token = model.symbols("target")[config.start_id]
    spec.config.add_source_eos = config.source_eos
    spec.config.layer_norm_epsilon = config.norm_eps
    spec.register_source_vocabulary(model.symbols("source"))
    spec.register_target_vocabulary(model.symbols("target"))
    spec.validate()
    spec.optimize(quantization=QUANTIZATIONS[weights])
    spec.save(str(folder.path))
    for name, content in model.models().items():
        folder.save_bytes(name, content)


def _stack(kind: Any, model: Portable) -> Any:
    """Return the empty encoder or decoder."""
    config = model.config
    depth = config.num_layers if "Encoder" in kind.__name__ or config.decoder_layers is None else config.decoder_layers
    rotary = {"rotary_dim": 0, "rotary_interleave": True} if config.positions == "rotary" else {}
    common_spec = require("ctranslate2.specs.common_spec", extra="ctranslate2")
    return kind(
        depth,
        config.num_heads,
        pre_norm=config.norm_order == "pre",
        no_final_norm=not has_final_norm(config),
        activation=common_spec.Activation(THEIR_ACTIVATIONS[config.feed_forward]),
        ffn_glu=config.feed_forward == "swiglu",
        rms_norm=config.norm == "rms",
        **rotary,
    )


def _names(model: Portable) -> dict[str, tuple[str, ...]]:
    """Return the names of parameters. SwiGLU's two matrices have a name each."""
    found = names(model.config)
    if model.config.feed_forward == "swiglu":
        for own, theirs in found.items():
            if ".feed_forward.inner." in own:
                found[own] = (theirs[0], theirs[0].replace("linear_0/", "linear_0_noact/"))
    return found


def _set(spec: Any, name: str, value: Any) -> None:
    """Set the variable that has this name in model.bin, such as encoder/layer_0/ffn/linear_0/weight."""
    *scope, last = name.split("/")
    for part in scope:
        numbered = None if hasattr(spec, part) else re.fullmatch(r"(.+)_([0-9]+)", part)
        spec = getattr(spec, part) if numbered is None else getattr(spec, numbered[1])[int(numbered[2])]
    setattr(spec, last, value)
