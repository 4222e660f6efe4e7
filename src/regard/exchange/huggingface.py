"""Hugging Face's Marian models, such as those of OPUS-MT: config.json, weights, source.spm, target.spm and vocab.json.

Layers are post-norm; positions are the paper's sinusoids with all sines first; the decoder begins with the padding symbol,
whose logit takes part in the softmax and which is never output. A vocabulary has EOS and UNK first and padding last.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from regard.errors import ConfigError
from regard.exchange.imported import (
    Imported,
    Settings,
    Tell,
    load_settings,
    need_file,
    refuse_too_large,
    search_options,
    transformer_config,
)
from regard.exchange.names import Modules, Names, Side, our_weights, parameter_names
from regard.exchange.torch_file import read_torch_file, tensors_of
from regard.exchange.vocabulary import Vocabulary, find_symbol
from regard.models.encoder_decoder import TransformerConfig
from regard.run.torch_tensors import read_tensors
from regard.storage.folder import Folder
from regard.text.tokenizer_pair import Tokenizers

FORMAT = "Hugging Face Marian"
CONFIG, VOCABULARY, TARGET_VOCABULARY = "config.json", "vocab.json", "target_vocab.json"
SOURCE_MODEL, TARGET_MODEL = "source.spm", "target.spm"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}
EPS = 1e-5  # of torch.nn.LayerNorm

# Other names of the shared matrix; a file may have several of them.
SHARED = (
    "model.shared.weight",
    "model.decoder.embed_tokens.weight",
    "model.encoder.embed_tokens.weight",
    "lm_head.weight",
)
COMPUTED = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def layer_modules(prefix: str) -> Modules:
    """Return the names of a layer's modules in Hugging Face's Marian and in fairseq."""
    return {
        "attention.project": tuple(f"{prefix}.self_attn.{one}_proj" for one in "qkv"),
        "attention.output": (f"{prefix}.self_attn.out_proj",),
        "around_attention.norm": (f"{prefix}.self_attn_layer_norm",),
        "cross_attention.query": (f"{prefix}.encoder_attn.q_proj",),
        "cross_attention.memory": tuple(f"{prefix}.encoder_attn.{one}_proj" for one in "kv"),
        "cross_attention.output": (f"{prefix}.encoder_attn.out_proj",),
        "around_cross_attention.norm": (f"{prefix}.encoder_attn_layer_norm",),
        "feed_forward.inner": (f"{prefix}.fc1",),
        "feed_forward.outer": (f"{prefix}.fc2",),
        "around_feed_forward.norm": (f"{prefix}.final_layer_norm",),
    }


def names(config: TransformerConfig) -> Names:
    """Return the name of each of our parameters in a file of weights."""
    target = "model.shared.weight" if config.tie == "all" else "model.decoder.embed_tokens.weight"
    ends = {
        "target_embedding": (target,),
        "source_embedding": ("model.encoder.embed_tokens.weight",),
        "output": ("lm_head.weight",),
        "output_bias": ("final_logits_bias",),
    }

    def modules(side: Side, number: int) -> Modules:
        return layer_modules(f"model.{side}.layers.{number}")

    return parameter_names(config, modules=modules, ends=ends, tensor=lambda module, kind: f"{module}.{kind}")


def fits(folder: Folder) -> bool:
    """Return whether the folder looks like one of these models."""
    return {CONFIG, VOCABULARY, SOURCE_MODEL} <= set(folder.names())


def read(folder: Folder, tell: Tell) -> Imported:
    """Return the model of a folder."""
    origin = str(folder.path / CONFIG)
    settings = Settings(load_settings(folder, CONFIG), origin=origin)
    table = model_table(settings)
    shared = settings.flag("share_encoder_decoder_embeddings", default=True)
    source = _vocabulary(folder, VOCABULARY, settings, size=settings.integer("vocab_size"))
    target = source
    if not shared:
        target_size = settings.values.get("decoder_vocab_size") or settings.integer("vocab_size")
        name = TARGET_VOCABULARY if folder.has_file(TARGET_VOCABULARY) else VOCABULARY
        target = _vocabulary(folder, name, settings, size=target_size)
    start = settings.integer("decoder_start_token_id", settings.integer("pad_token_id"))
    if start != target.bos:
        table["start_id"] = target.here(start)
    why = "an OPUS-MT model comes with it"
    files = [need_file(folder, one, why=why) for one in (SOURCE_MODEL, TARGET_MODEL)]
    models = [folder.load_bytes(name) for name in files]
    tokenizers = Tokenizers(
        source.tokenizer(models[0], origin=str(folder.path)), target.tokenizer(models[1], origin=str(folder.path))
    )
    weights_name = next((name for name in WEIGHTS if name in folder.names()), WEIGHTS[0])
    need_file(folder, weights_name, why="the weights must be in one file of this name, or in pytorch_model.bin")
    refuse_too_large(folder, weights_name, tell=tell)
    config, weights_path = transformer_config(table), str(folder.path / weights_name)
    tensors = _canonical(_tensors(folder, weights_name), config, origin=weights_path)
    weights = our_weights(names(config), tensors, (source.order(), target.order()), origin=weights_path)
    return Imported(
        FORMAT,
        table,
        weights,
        tokenizers,
        _search(folder, settings),
        [CONFIG, weights_name, VOCABULARY, *files],
        [
            "Text is not normalized as OPUS-MT's scripts do before SentencePiece; Hugging Face's tokenizer does not either."
        ],
    )


def model_table(settings: Settings) -> dict[str, Any]:
    """Return the options of our Transformer. What it cannot express is refused."""
    settings.refuse(
        {
            "model_type": "marian",
            "normalize_before": False,
            "normalize_embedding": False,
            "add_final_layer_norm": False,
            "static_position_embeddings": True,
            "extra_pos_embeddings": 0,
        }
    )
    shared = settings.flag("share_encoder_decoder_embeddings", default=True)
    tied = settings.flag("tie_word_embeddings", default=True)
    return {
        "width": settings.integer("d_model"),
        "num_layers": settings.integer("encoder_layers"),
        "decoder_layers": settings.integer("decoder_layers"),
        "num_heads": settings.same("encoder_attention_heads", "decoder_attention_heads"),
        "hidden": settings.same("encoder_ffn_dim", "decoder_ffn_dim"),
        "dropout": settings.number("dropout", 0.1),
        "attention_dropout": settings.number("attention_dropout", 0.0),
        "activation_dropout": settings.number("activation_dropout", 0.0),
        "feed_forward": settings.one_of("activation_function", ACTIVATIONS, "gelu"),
        "tie": "none" if not tied else "all" if shared else "target",
        "scale_embeddings": settings.flag("scale_embedding", default=False),
        "positions": "sinusoid-halves",
        "attention_bias": True,
        "output_bias": True,
        "norm_eps": EPS,
    }


def _vocabulary(folder: Folder, name: str, settings: Settings, *, size: int) -> Vocabulary:
    """Return a vocabulary, whose symbols are given with their ids."""
    origin = str(folder.path / need_file(folder, name, why="it gives symbols their ids"))
    given = load_settings(folder, name)
    if not all(type(id) is int and 0 <= id < size for id in given.values()):
        raise ConfigError(f"{origin} has an id that is not from 0 to {size - 1}, as vocab_size in {CONFIG} says")
    symbols = [f"<unused {id}>" for id in range(size)]
    for symbol, id in given.items():
        symbols[id] = symbol
    pad, eos = settings.integer("pad_token_id"), settings.integer("eos_token_id")
    if not max(pad, eos) < size:
        raise ConfigError(f"{settings.origin}: pad_token_id is {pad} and eos_token_id {eos}, but there are {size} ids")
    return Vocabulary(symbols, unk=find_symbol(symbols, ["<unk>"], origin=origin), bos=pad, eos=eos)


def _tensors(folder: Folder, name: str) -> dict[str, Tensor]:
    if name.endswith(".safetensors"):
        return read_tensors(folder, name)
    return tensors_of(read_torch_file(folder, name), origin=str(folder.path / name))


def _canonical(tensors: dict[str, Tensor], config: TransformerConfig, *, origin: str) -> dict[str, Tensor]:
    """Return the tensors without those that are computed, or repeat others."""
    tensors = {name: one for name, one in tensors.items() if name not in COMPUTED}
    shared = next((tensors[name] for name in SHARED if name in tensors), None)
    if shared is None:
        raise ConfigError(f"{origin} has no tensor {SHARED[0]!r}, which a model of its settings needs")
    if config.tie == "all":
        tensors = {name: one for name, one in tensors.items() if name not in SHARED}
        tensors[SHARED[0]] = shared
    else:
        for name in SHARED[1:3]:
            tensors.setdefault(name, shared)
        tensors.pop(SHARED[0], None)
        if config.tie == "target":
            tensors.pop("lm_head.weight", None)
    rows = tensors[names(config)["target_embedding"][0]].size(0)
    bias = tensors.get("final_logits_bias", shared.new_zeros(rows))
    return {**tensors, "final_logits_bias": bias.flatten()}


def _search(folder: Folder, settings: Settings) -> Any:
    """Return how generate searches by default."""
    values = dict(settings.values)
    if folder.has_file("generation_config.json"):
        values |= load_settings(folder, "generation_config.json")
    given = Settings(values, origin=settings.origin)
    return search_options(
        beam=given.integer("num_beams", 1),
        length_penalty=given.number("length_penalty", 1.0),
        length_penalty_kind="power",
        early_stopping=values.get("early_stopping") is True,
        max_source=given.integer("max_position_embeddings", 1024) - 1,
    )
