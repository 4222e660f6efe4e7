"""Writing a model as a folder of Hugging Face's Marian: MarianMTModel and MarianTokenizer load it.

Symbols have the ids that OPUS-MT's models have: EOS and UNK first, and padding, which stands for BOS, last. The paper's
sinusoids alternate sines and cosines, and Marian's have all sines first: the entries of all vectors are reordered to fit.
"""

from __future__ import annotations

from typing import Any

import msgspec
from safetensors.torch import save_file
from torch import Tensor

from regard.errors import ConfigError
from regard.exchange.huggingface import ACTIVATIONS, CONFIG, TARGET_VOCABULARY, VOCABULARY, WEIGHTS, names
from regard.exchange.names import reorder_rows, to_theirs
from regard.exchange.portable import (
    Portable,
    refuse_options,
    refuse_other_heads,
    reorder_width,
    sines_first,
    with_biases,
)
from regard.storage.folder import Folder
from regard.text.symbols import BOS, EOS, RESERVED, UNK

TARGET = "Hugging Face's Marian"
GENERATION, TOKENIZER = "generation_config.json", "tokenizer_config.json"
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
FITTING: dict[str, tuple[Any, ...]] = {
    "norm": ("layer",),
    "norm_order": ("post",),
    "final_norm": (None, False),
    "positions": ("sinusoid", "sinusoid-halves"),
    "first_position": (0,),
    "feed_forward": tuple(THEIR_ACTIVATIONS),
    "qk_norm": (False,),
    "window": (None,),
    "source_eos": (True,),
    "copy": (False,),
}


def refuse(model: Portable, weights: str) -> None:
    """Raise ConfigError for what a folder of this kind cannot express."""
    refuse_options(model.config, TARGET, FITTING)
    refuse_other_heads(model.config, TARGET)
    if weights != "float32":
        raise ConfigError(f"--weights is {weights}, but transformers computes in float32 on a CPU; leave it out")


def _order(model: Portable, side: str) -> list[int]:
    """Return our id of each id there."""
    size, other = len(model.symbols(side)), len(model.symbols("target" if side == "source" else "source"))
    text = list(range(len(RESERVED), size))
    # Both vocabularies have padding at one id.
    return [EOS, UNK, *text, BOS] if size == other else [EOS, UNK, BOS, *text]


def write(model: Portable, folder: Folder, weights: str) -> None:
    """Write the files that transformers reads."""
    config = msgspec.structs.replace(model.config, attention_bias=True, output_bias=True)
    orders = {side: _order(model, side) for side in ("source", "target")}
    tensors = with_biases(config, model.weights, names(config))
    if config.positions == "sinusoid":
        tensors = reorder_width(tensors, sines_first(config.width))
    theirs: dict[str, Tensor] = to_theirs(names(config), reorder_rows(tensors, orders))
    theirs["final_logits_bias"] = theirs["final_logits_bias"][None].contiguous()
    # Older versions of transformers read the metadata.
    save_file(theirs, folder.path / WEIGHTS[0], metadata={"format": "pt"})
    folder.save_json(CONFIG, _settings(model, orders))
    folder.save_json(GENERATION, _generation(model, orders))
    shared = model.one_vocabulary
    folder.save_json(
        TOKENIZER,
        {
            "tokenizer_class": "MarianTokenizer",
            "pad_token": model.start,
            "separate_vocabs": not shared,
            "model_max_length": model.num_positions,
        },
    )
    for side, name in (("source", VOCABULARY), ("target", TARGET_VOCABULARY)):
        if side == "source" or not shared:
            folder.save_json(name, {symbol: id for id, symbol in enumerate(symbols(model, side))})
    for name, content in model.models().items():
        folder.save_bytes(name, content)


def symbols(model: Portable, side: str) -> list[str]:
    """Return the symbol of each id there."""
    own = model.symbols(side)
    return [own[id] for id in _order(model, side)]


def _settings(model: Portable, orders: dict[str, list[int]]) -> dict[str, Any]:
    """Return config.json."""
    config = model.config
    depth = config.num_layers if config.decoder_layers is None else config.decoder_layers
    shared = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in (
        ("attention_heads", config.num_heads), ("ffn_dim", config.hidden)
    )}  # fmt: skip
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": len(orders["source"]),
        "decoder_vocab_size": len(orders["target"]),
        "d_model": config.width,
        "encoder_layers": config.num_layers,
        "decoder_layers": depth,
        **shared,
        "activation_function": THEIR_ACTIVATIONS[config.feed_forward],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": config.scale_embeddings,
        "static_position_embeddings": True,
        "max_position_embeddings": model.num_positions,
        "share_encoder_decoder_embeddings": config.tie == "all",
        "tie_word_embeddings": config.tie != "none",
        "normalize_before": False,
        "add_final_layer_norm": False,
        "normalize_embedding": False,
        "use_cache": True,
        **_ids(model, orders),
    }


def _generation(model: Portable, orders: dict[str, list[int]]) -> dict[str, Any]:
    """Return generation_config.json: the options that `generate` searches with by default."""
    ids, options = _ids(model, orders), model.options
    return {
        **ids,
        "bad_words_ids": [[ids["pad_token_id"]]],
        "max_length": model.num_positions,
        "num_beams": options.beam,
        "length_penalty": options.length_penalty,
        "early_stopping": options.early_stopping,
    }


def _ids(model: Portable, orders: dict[str, list[int]]) -> dict[str, int]:
    target = orders["target"]
    return {
        "pad_token_id": target.index(BOS),
        "eos_token_id": target.index(EOS),
        "decoder_start_token_id": target.index(model.config.start_id),
        "forced_eos_token_id": target.index(EOS),
    }
