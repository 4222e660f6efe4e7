"""Folders of Hugging Face's Marian models with random weights, as OPUS-MT's are: made by transformers itself."""

import json
import random

import torch

from regard.text.subwords import train_subwords
from regard.text.symbols import EOS

WORDS = ["the", "cat", "dog", "house", "sat", "ran", "here", "there", "on", "in", "a", "old", "station", "where", "is"]
WOERTER = [
    "die",
    "der",
    "Katze",
    "Hund",
    "Haus",
    "saß",
    "lief",
    "hier",
    "dort",
    "auf",
    "in",
    "eine",
    "alt",
    "Bahnhof",
    "wo",
]


def sentences(words, count, seed=1):
    chosen = random.Random(seed)
    return [" ".join(chosen.choices(words, k=chosen.randint(1, 9))) for _ in range(count)]


def write_tokenizers(folder, tags=()):
    """Write source.spm, target.spm and vocab.json, and return the size of the vocabulary."""
    symbols = {"</s>": 0, "<unk>": 1}
    for name, words in (("source", WORDS), ("target", WOERTER)):
        file = train_subwords(sentences(words, 200), kind="unigram", size=70, coverage=1.0, byte_fallback=False)
        (folder / f"{name}.spm").write_bytes(file.model)
        for symbol in file.tokens(range(EOS + 1, file.size)):
            symbols.setdefault(symbol, len(symbols))
    for symbol in (*tags, "<pad>"):
        symbols[symbol] = len(symbols)
    (folder / "vocab.json").write_text(json.dumps(symbols, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"source_lang": "en", "target_lang": "de", "tokenizer_class": "MarianTokenizer"})
    )
    return len(symbols)


def make_model(size, *, seed=3, ending=4.2, **options):
    """Return a MarianMTModel whose weights, biases and final_logits_bias are all random, and large enough to matter."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=size,
        pad_token_id=size - 1,
        decoder_start_token_id=size - 1,
        **{
            "d_model": 16,
            "encoder_layers": 2,
            "decoder_layers": 3,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 24,
            "decoder_ffn_dim": 24,
            "activation_function": "swish",
            "scale_embedding": True,
            "max_position_embeddings": 64,
            **options,
        },
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = MarianMTModel(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "embed_positions" not in name:
                    parameter.copy_(_draw(name, parameter))
            model.final_logits_bias.normal_(std=0.3)
            model.final_logits_bias[0, 0] += ending
    return model


def _draw(name, like):
    """Weights that give varied outputs: attention is peaked, so that sources and positions matter more than constants."""
    drawn = torch.randn_like(like)
    if like.dim() == 1:
        return 1.0 + 0.1 * drawn if "norm.weight" in name else 0.1 * drawn
    if ".q_proj" in name or ".k_proj" in name:
        return 0.7 * drawn
    return (0.3 if "layers" in name else 0.5) * drawn


def make_folder(folder, *, tags=(), **options):
    """Write a folder as `save_pretrained` does, with its tokenizers, and return the model."""
    folder.mkdir(parents=True, exist_ok=True)
    model = make_model(write_tokenizers(folder, tags), **options)
    model.save_pretrained(folder)
    return model
