"""What training is made of: corpus, tokenizers, model, loader and validation from a recipe, and what is refused first."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import msgspec
import torch

from regard import kernels
from regard.config import Recipe, TokenizerConfig
from regard.data.column import IdColumn
from regard.data.columns import Encoded, EncodedPairs
from regard.data.fertilities import Aligner
from regard.data.loader import Batch, Loader, in_order, make_batch, to_device
from regard.data.packing import PackedLoader
from regard.data.pair_store import PairStore
from regard.decoding.translator import Translator
from regard.errors import ConfigError, DataError, did_you_mean
from regard.evaluation.metrics import deciding_metric, histograms, score_all
from regard.explain.trace import attention_between
from regard.models import build_model, model_config
from regard.models.base import Model, Seq2Seq
from regard.nn.device import autocast, pick_precision
from regard.recipe_files import differences
from regard.run.folder import RunFolder
from regard.storage.folder import Folder
from regard.text.bitext import find_store, load_bitext, pairs_fingerprint
from regard.text.corpus import Pair
from regard.text.tokenizer import TOKENIZERS, UNK, Tokenizers, load_tokenizers, train_tokenizers
from regard.toml import to_table
from regard.training.events import Event, Example, Listener, Noted, Progress, Saved, Started, Validated, Validation
from regard.training.loss import sequence_loss
from regard.training.memory_check import check_memory, largest_budget, longest_sentences, rectangles
from regard.training.trainer import Validate
from regard.training.world import World

EXAMPLES_SHOWN = 5


class TrainingPairs(Protocol):
    """What training asks of its pairs: text in memory answers, and a store of ids."""

    def __len__(self) -> int: ...

    def fingerprint(self) -> dict[str, int | str]:
        """Number and hash."""

    def tokenizers(self, config: TokenizerConfig) -> Tokenizers:
        """Those to begin with."""

    def encoded(self, tokenizers: Tokenizers) -> Encoded:
        """The ids."""


@dataclass(frozen=True)
class TextPairs:
    """Pairs of text in memory."""

    pairs: list[Pair]

    def __len__(self) -> int:
        return len(self.pairs)

    def fingerprint(self) -> dict[str, int | str]:
        return pairs_fingerprint(self.pairs)

    def tokenizers(self, config: TokenizerConfig) -> Tokenizers:
        return train_tokenizers(
            self.pairs, kind=config.kind, size=config.size, joint=config.joint, coverage=config.coverage
        )

    def encoded(self, tokenizers: Tokenizers) -> EncodedPairs:
        return encode_pairs(self.pairs, tokenizers)

    def resampled(self, tokenizers: Tokenizers, rate: float) -> Callable[[int], EncodedPairs]:
        """The ids by seed, each time of other splits."""
        source = tokenizers.source.resampled([pair.source for pair in self.pairs], rate)
        target = tokenizers.target.resampled([pair.target for pair in self.pairs], rate)
        return lambda seed: EncodedPairs(IdColumn(*source.draw(seed)), IdColumn(*target.draw(seed)))


@dataclass(frozen=True)
class Corpus:
    train: TrainingPairs
    valid: list[Pair]

    @property
    def summary(self) -> str:
        valid = f", {len(self.valid):,} to validate on" if self.valid else ", none to validate on"
        return f"{len(self.train):,} pairs to train on{valid}"

    def fingerprint(self) -> dict[str, Any]:
        """Sizes and hashes: what a later run can be held against."""
        return {"train": self.train.fingerprint(), "valid": pairs_fingerprint(self.valid)}


def resolve(recipe: Recipe) -> Recipe:
    """The recipe with its model's preset spelled out, so that the run folder says everything."""
    kind, config = model_config(recipe.model)
    TOKENIZERS.get(recipe.tokenizer.kind, where="tokenizer.kind")
    deciding_metric(recipe.train.metric)
    return msgspec.structs.replace(recipe, model={"kind": kind, **to_table(config)})


# Settings of the machine and of the display: a run may go on with others.
NOT_THE_RUN = ("train.threads", "train.device", "train.parallel", "train.log_every", "train.tensorboard", "train.keep")


# What a run can go on with when it is told so: nothing that its weights, optimizer or order of batches were made by.
MAY_CHANGE = (
    *("train.steps", "train.lr", "train.schedule", "train.warmup_steps", "train.decay", "train.weight_decay"),
    *(
        "train.accumulate",
        "train.label_smoothing",
        "train.clip_norm",
        "train.max_bad_steps",
        "train.average",
        "train.final",
        "train.metric",
    ),
    *("train.patience", "train.validate_every", "train.validate_pairs", "train.checkpoint_every", "train.disk_full"),
    *("train.stall_seconds", "train.kernels", "train.graph", "train.precision", "data.test", "decode", "evaluate"),
)


def refuse_other_recipe(run: RunFolder, recipe: Recipe, accept: Sequence[str]) -> None:
    for key in accept:
        if not key.startswith(MAY_CHANGE):
            raise ConfigError(f"{key} cannot change in a run that has begun; {did_you_mean(key, MAY_CHANGE)}")

    def is_meant(change: str) -> bool:
        key = change.partition(":")[0]
        return any(key == meant or key.startswith(f"{meant}.") for meant in (*NOT_THE_RUN, *accept))

    changed = [change for change in differences(run.recipe(), recipe) if not is_meant(change)]
    if changed:
        raise ConfigError(
            f"{run} holds a run of another recipe ({'; '.join(changed[:5])}); name another folder with --out, "
            "give the settings it was started with, or say --accept KEY for each change you mean"
        )


def load_corpus(recipe: Recipe, folders: list[Path]) -> Corpus:
    config = recipe.train
    if recipe.data.valid is None and (config.patience or config.final == "best"):
        raise ConfigError("train.patience and train.final=best need dev pairs to judge by; name them in data.valid")
    valid = [] if recipe.data.valid is None else load_bitext(recipe.data.valid, folders=folders)
    store = recipe.data.train.store
    if store is None:
        return Corpus(TextPairs(load_bitext(recipe.data.train, folders=folders)), valid)
    if recipe.tokenizer.sampling:
        raise ConfigError(
            "ids on disk are the same every epoch; set tokenizer.sampling=0, or train from text without data.train.store"
        )
    return Corpus(PairStore(find_store(store, folders)), valid)


def fresh_tokenizers(recipe: Recipe, pairs: TrainingPairs) -> Tokenizers:
    return pairs.tokenizers(recipe.tokenizer)


def tokenizers_for_all(tokenizers: Tokenizers | None, world: World) -> Tokenizers:
    """Those of the first process, which alone has trained them."""
    with TemporaryDirectory() as name:
        folder = Folder(name)
        if tokenizers is not None and world.size > 1:
            tokenizers.save(folder)
        files = {file: base64.b64encode(folder.load_bytes(file)).decode() for file in folder.names()}
        received = world.gather(files)[0]
        if tokenizers is not None:
            return tokenizers
        for file, content in received.items():
            folder.save_bytes(file, base64.b64decode(content))
        return load_tokenizers(folder)


def fresh_model(recipe: Recipe, tokenizers: Tokenizers) -> Model:
    """A model whose first weights follow from the seed, without touching the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(recipe.train.seed)
        model = build_model(recipe.model, source_size=tokenizers.source.size, target_size=tokenizers.target.size)
    if model.max_length is not None and recipe.data.max_length + 1 > model.max_length:
        fits = model.max_length - 1
        raise ConfigError(
            f"the model takes at most {fits} tokens and EOS; set data.max_length={fits}, or more model.max_positions"
        )
    return model


def encode_pairs(pairs: Sequence[Pair], tokenizers: Tokenizers) -> EncodedPairs:
    source = tokenizers.source.encode_all([pair.source for pair in pairs])
    target = tokenizers.target.encode_all([pair.target for pair in pairs])
    return EncodedPairs(IdColumn.from_lists(source), IdColumn.from_lists(target))


def learn_to_align(recipe: Recipe, ids: Encoded, model: Model) -> Aligner | None:
    """What says how many target tokens each source token became, for a model that wants to know."""
    if not model.wants_fertilities:
        return None
    if not isinstance(ids, EncodedPairs) or recipe.tokenizer.sampling:
        raise ConfigError("this model needs its pairs in memory and always in the same pieces; no store, no sampling")
    return Aligner.learn(ids, max_length=recipe.data.max_length)


def make_loader(
    recipe: Recipe,
    pairs: TrainingPairs,
    plain: Encoded,
    tokenizers: Tokenizers,
    model: Model,
    world: World,
    listen: Listener,
) -> Loader | PackedLoader:
    """Batches of fixed shapes where a GPU can use them, of sentences of like length elsewhere.

    `plain` are the ids as they are without sampling.
    """
    most = recipe.data.max_length
    too_long = len(plain) - plain.upto(most).pairs
    if too_long == len(plain):
        raise DataError(f"every pair has a side of more than {most} tokens; raise data.max_length")
    if too_long:
        listen(Noted(0, f"{too_long:,} pairs have a side of more than {most} tokens and are left out of training"))
    _tell_of_unwritable(plain, model, listen)
    rate, seed = recipe.tokenizer.sampling, recipe.train.seed
    draw = None
    if rate:
        assert isinstance(pairs, TextPairs), "ids on disk are the same every epoch"
        draw = pairs.resampled(tokenizers, rate)

    @lru_cache(maxsize=1)
    def sides_of(epoch: int) -> Encoded:
        return draw(seed * 1_000_003 + epoch) if draw else plain

    obstacle = why_not_packed(recipe, model, world)
    if obstacle and next(model.parameters()).is_cuda:
        listen(Noted(0, f"batches are of sentences of like length, without a CUDA graph, because {obstacle}"))
    budget = recipe.train.budget
    if obstacle:
        return Loader(sides_of, budget=budget, max_length=most, seed=seed)
    return PackedLoader(sides_of, budget=budget, max_length=most, seed=seed, similar_lengths=model.similar_lengths)


def _tell_of_unwritable(ids: Encoded, model: Model, listen: Listener) -> None:
    if not isinstance(ids, EncodedPairs):
        return
    count = int(model.cannot_write(ids.source.lengths, ids.target.lengths).sum())
    if count == len(ids):
        raise DataError("every target is longer than this model can write for its source; raise model.places")
    if count:
        listen(
            Noted(
                0, f"{count:,} targets are longer than this model can write for their source: nothing is learned there"
            )
        )


def why_not_packed(recipe: Recipe, model: Model, world: World) -> str:
    """What keeps batches from being packed for our kernels; nothing, where they can be."""
    weight = next(model.parameters())
    if not weight.is_cuda:
        return "there is no GPU"
    if not recipe.train.kernels:
        return "train.kernels is false"
    if not kernels.usable(weight):
        return "Triton is not installed"
    if pick_precision(recipe.train.precision, weight.device) != torch.bfloat16:
        return "products are not in bfloat16"
    if not model.static_shapes:
        return "this family, model.attention or the width of the heads does not suit our kernels"
    if model.similar_lengths and (world.size > 1 or not recipe.train.graph or recipe.train.accumulate > 1):
        return "this family gains by packing only what is recorded: one process, train.graph, no train.accumulate"
    return ""


def chosen_budget(recipe: Recipe, ids: Encoded, model: Model, world: World, listen: Listener) -> Recipe:
    """The recipe with a token budget that fits every process: the one it names, or the largest there is."""
    precision, kept = pick_precision(recipe.train.precision, world.device), ids.upto(recipe.data.max_length)
    batch_of, most = longest_sentences(kept.longest), kept.tokens + kept.pairs  # EOS
    if model.similar_lengths and not why_not_packed(recipe, model, world):
        batch_of, most = rectangles(ids, recipe.data.max_length), sys.maxsize  # which are as large for a small corpus
    if recipe.train.tokens != "auto":
        check_memory(model, min(recipe.train.tokens, most), batch_of, precision=precision)
        return recipe
    budget = min(world.gather(largest_budget(model, batch_of, precision=precision)))
    listen(Noted(0, f"train.tokens=auto: {budget:,} tokens a side fit into memory"))
    return msgspec.structs.replace(recipe, train=msgspec.structs.replace(recipe.train, tokens=budget))


def try_one_pair(model: Model, device: torch.device, precision: torch.dtype) -> None:
    """Runs a pair through the model, so that what cannot run on this machine is told before a folder exists.

    It is made up: a run that goes on reads nothing that it has passed.
    """
    with torch.inference_mode(), autocast(device, precision):
        sequence_loss(model, to_device(make_batch([[UNK]], [[UNK]]), device), smoothing=0.0)


def make_validator(
    recipe: Recipe, pairs: list[Pair], tokenizers: Tokenizers, world: World, aligner: Aligner | None
) -> Validate:
    """Scores a model on the dev set: its loss over all pairs, the other metrics over the first few, greedily.

    Each process takes its share of the pairs; all of them get all scores.
    """
    device, mine = world.device, slice(world.rank, None, world.size)
    score_all(["a"], ["a"], recipe.evaluate)  # refuses a metric that cannot be computed here
    encoded = encode_pairs(pairs, tokenizers)
    encoded = encoded if aligner is None else aligner.add_to(encoded)
    batches = in_order(encoded, budget=recipe.train.budget, max_length=recipe.data.max_length)[mine]
    shown = pairs[: recipe.train.validate_pairs]
    sources, references = [pair.source for pair in shown], [pair.target for pair in shown]
    options = recipe.decode.replace(beam=1)
    precision = pick_precision(recipe.train.precision, device)

    def validate(model: Model) -> Validation:
        with autocast(device, precision):
            loss, tokens = world.sum(*dev_loss(model, batches, device))
            own = Translator(model, tokenizers, recipe.decode).translate(sources[mine], options=options)
        metrics = {"loss": loss / max(tokens, 1)}
        outputs = [""] * len(sources)
        for rank, theirs in enumerate(world.gather(own)):
            outputs[rank :: world.size] = theirs
        metrics |= {score.name: score.value for score in score_all(outputs, references, recipe.evaluate)}
        examples = [Example(*three) for three in zip(sources, outputs, references, strict=True)]
        examples_shown = tuple(examples[:: -(-len(examples) // EXAMPLES_SHOWN)])
        details: dict[str, Any] = {"histograms": histograms(outputs, references)}
        if examples_shown and isinstance(model, Seq2Seq):
            first = examples_shown[0]
            with autocast(device, precision):
                details["attention"] = attention_between(model, tokenizers, first.source, first.output)
        empty = bool(outputs) and not any(output.strip() for output in outputs)
        warnings = (f"all {len(outputs):,} dev outputs are empty: the model writes nothing yet",) if empty else ()
        return Validation(metrics, examples_shown, details, warnings)

    return validate


@torch.inference_mode()
def dev_loss(model: Model, batches: Sequence[Batch], device: torch.device) -> tuple[float, int]:
    """Summed loss in nats, unsmoothed, and the number of target tokens: exp of their ratio is the perplexity."""
    total, tokens = 0.0, 0
    for batch in batches:
        loss = sequence_loss(model, to_device(batch, device), smoothing=0.0)
        total, tokens = total + loss.total.item(), tokens + loss.tokens
    return total, tokens


def log_event(run: RunFolder, event: Event) -> None:
    """Writes an event to the run's log, as one JSON line."""
    match event:
        case Progress() | Started():
            run.log({"event": type(event).__name__.lower(), **vars(event)})
        case Validated(step, metrics, examples, best, details):
            lines = [vars(example) for example in examples]
            run.log({"event": "validated", "step": step, "best": best, **metrics, "examples": lines, **details})
        case Saved(step, folder):
            run.log({"event": "saved", "step": step, "checkpoint": folder.name})
        case Noted(step, text):
            run.log({"event": "noted", "step": step, "text": text})
