"""Run folders of tiny Transformers with random weights, large enough to give varied outputs."""

import torch

from regard.config import Bitext, DataConfig, Recipe, SearchOptions, TokenizerConfig
from regard.config.mixing import language_tag
from regard.models import build_model
from regard.run.checkpoint import Checkpoint
from regard.run.folder import RunFolder
from regard.tasks.recipe_checks import resolve
from regard.text.tokenizer_pair import train_tokenizers
from tests.exchange.marian_folders import WOERTER, WORDS, sentences

DECODE = SearchOptions(beam=3, length_penalty=0.6, max_extra=6, max_source=40)
TINY = {"kind": "transformer", "width": 16, "num_layers": 2, "decoder_layers": 1, "num_heads": 4, "hidden": 24}


def make_run(
    folder,
    *,
    joint=True,
    tokenizer="unigram",
    byte_fallback=False,
    name="tiny",
    targets=(),
    model=TINY,
    decode=DECODE,
    **options,
):
    """Write a run whose model has these options, and return its path. `targets` are languages to choose from."""
    pairs = list(zip(sentences(WORDS, 200), sentences(WOERTER, 200), strict=True))
    size = 330 if byte_fallback else 60
    subwords = tokenizer in ("bpe", "unigram")
    tokenizers = train_tokenizers(
        pairs, kind=tokenizer, size=size, joint=joint, byte_fallback=byte_fallback if subwords else None
    ).with_tags([language_tag(language) for language in targets])
    corpora = tuple(Bitext(pairs="train.tsv", languages=("en", language)) for language in targets)
    recipe = resolve(
        Recipe(
            name=name,
            data=DataConfig(train=corpora or Bitext(pairs="train.tsv")),
            model={**model, **options},
            tokenizer=TokenizerConfig(kind=tokenizer, size=size, joint=joint),
            decode=decode,
        )
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        built = build_model(recipe.model, source_size=tokenizers.source.size, target_size=tokenizers.target.size)
        weights = {key: _draw(key, value.detach()) for key, value in built.named_parameters()}
    run = RunFolder(folder)
    run.finish(Checkpoint(weights, counters={"step": 0}))
    run.create(recipe, tokenizers, {})
    return run.path


def _draw(name, like):
    drawn = torch.randn_like(like)
    if like.dim() == 1:
        return 1.0 + 0.1 * drawn if "norm" in name and name.endswith("weight") else 0.1 * drawn
    if name.endswith((".project.weight", ".query.weight", ".memory.weight")):
        return 0.6 * drawn
    return 0.3 * drawn
