"""Probe runs: how important each attention head is and where it attends, and how similarly layers represent tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.config import EvaluateConfig, SearchOptions
from regard.decoding.translator import Translator
from regard.errors import ConfigError, DataError
from regard.explain.head_gates import Head, all_heads
from regard.explain.head_importance import (
    Examples,
    Importance,
    PruningPoint,
    Report,
    by_layer,
    gradient_importance,
    loss_per_token,
    points_of,
    pruning_curve,
    random_order,
    removal_importance,
    removal_order,
)
from regard.explain.head_patterns import attention_patterns
from regard.explain.layer_similarity import STACKS, layer_states, noise_similarity, similarities
from regard.loading import load_translator
from regard.messages import counted, warn_caller
from regard.metrics import bleu, left_out_metrics
from regard.models.base import Seq2Seq
from regard.models.transformer import Transformer
from regard.run.finding import find_run
from regard.text.corpus import stream_pairs
from regard.text.languages import languages_of
from regard.text.text_report import TextReport

SEED = 1  # of the random order


@dataclass(frozen=True)
class HeadProbe:
    """The importance of each head of a run, and curves of removing them in several orders."""

    run: str
    sentences: int
    tokens: int
    loss: float  # per target token, of the complete model
    removal: Importance  # by how much the loss grows without a head
    gradient: Importance  # mean |∂ loss / ∂ gate|
    entropy: dict[Head, float]  # of its attention weights, in nats; the mean over queries
    distance: dict[Head, float]  # mean positions between query and key; of self-attention only
    curves: dict[str, list[PruningPoint]]  # by the order in which heads are removed

    def as_data(self) -> dict[str, Any]:
        """Return what is written as JSON."""
        heads = [
            {
                **head._asdict(),
                "removal": value,
                "gradient": self.gradient[head],
                "entropy": self.entropy[head],
                "distance": self.distance.get(head),
            }
            for head, value in self.removal.items()
        ]
        curves = {name: [point._asdict() for point in points] for name, points in self.curves.items()}
        plain = {key: value for key, value in asdict(self).items() if key in ("run", "sentences", "tokens", "loss")}
        return {"probe": "heads", **plain, "random_seed": SEED, "heads": heads, "curves": curves}

    def as_text(self) -> str:
        """Return a summary: heads with the largest and smallest values of each measure, and the curves as a table."""
        order = removal_order(self.removal)
        has_bleu = all(point.bleu is not None for points in self.curves.values() for point in points)
        by_entropy, by_distance = (sorted(one, key=lambda head: one[head]) for one in (self.entropy, self.distance))
        lines = [
            f"{counted(len(order), 'head')}; loss per target token {self.loss:.3f} on {counted(self.sentences, 'sentence')}",
            f"most important   {named(order[:-6:-1], self.removal, '+.3f')}",
            f"least important  {named(order[:5], self.removal, '+.3f')}",
            f"lowest entropy   {named(by_entropy[:5], self.entropy, '.2f')}",
            f"highest entropy  {named(by_entropy[:-6:-1], self.entropy, '.2f')}",
            f"nearest          {named(by_distance[:5], self.distance, '.1f')}",
            f"farthest         {named(by_distance[:-6:-1], self.distance, '.1f')}",
            "",
            "heads removed" + "".join(f"{f'by {name}':>22}" for name in self.curves),
            (" " * 13 + f"{'loss':>14}{'BLEU' if has_bleu else '':>8}" * len(self.curves)).rstrip(),
        ]
        for row in zip(*self.curves.values(), strict=True):
            cells = "".join(f"{one.loss:14.3f}{'' if one.bleu is None else f'{one.bleu:.1f}':>8}" for one in row)
            lines.append(f"{row[0].removed:13}{cells}".rstrip())
        return "\n".join(lines)


def named(heads: list[Head], values: Mapping[Head, float], form: str) -> str:
    """Return heads with their values: "encoder 1.2 (0.31), decoder 3.4 (0.52)"."""
    return ", ".join(f"{head} ({values[head]:{form}})" for head in heads)


def read_texts(run: Path | str, data: Path, sentences: int) -> tuple[list[str], list[str]]:
    """Return the sources and references of the first pairs of a file, in the languages of a run."""
    languages = languages_of(find_run(run).recipe().data, Path(run).name)
    pairs = list(islice(stream_pairs(data, languages=languages, report=TextReport()), sentences))
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def probe_heads(
    run: Path | str,
    data: Path,
    *,
    sentences: int = 200,
    points: int = 9,
    report: Report = lambda *_: None,
    warn: Callable[[str], None] = warn_caller,
) -> HeadProbe:
    """Measure the heads of a translation run on the first pairs of a file: .tsv, .csv, .jsonl, .tmx, .po or .parquet.

    `points` is the length of the curves; `report` is called with what is done, how much of it, and of how much.
    """
    translator = load_translator(run, "probe heads", device="cpu", engine="torch", precision="float32", warn=warn)
    model = translator.model
    if not isinstance(model, Seq2Seq) or not all_heads(model):
        raise ConfigError(f"{run} is not a Transformer with an encoder and a decoder; only these have heads to probe")
    texts, references = read_texts(run, data, sentences)
    encoded, outputs, _ = translator.encode_pairs(texts, references, SearchOptions())
    examples, heads = Examples(encoded, outputs), all_heads(model)
    removal = removal_importance(model, examples, report)
    gradient = gradient_importance(model, examples, report)
    entropy, distance = attention_patterns(model, examples, report)
    orders = {
        "removal": removal_order(removal),
        "gradient": removal_order(by_layer(gradient)),
        "random": random_order(heads, SEED),
    }

    # BLEU alone is scored.
    left_out = left_out_metrics(references, EvaluateConfig(metrics=("bleu",)))
    for sentence in left_out:
        warn(sentence)

    def score() -> float:
        found = translator.translate(texts, options=SearchOptions(beam=1))
        return bleu(found, references, texts, EvaluateConfig())[0]

    at = points_of(len(heads), points)
    curves: dict[str, list[PruningPoint]] = {}
    # Every order begins with all heads and ends with none.
    known: dict[frozenset[Head], PruningPoint] = {}
    for name, order in orders.items():
        curves[name] = []
        for removed in at:
            key = frozenset(order[:removed])
            if key not in known:
                [known[key]] = pruning_curve(model, examples, order, [removed], None if left_out else score)
            curves[name].append(known[key])
            report(f"pruning curve ({name})", len(curves[name]), len(at))
    base = loss_per_token(model, examples)
    return HeadProbe(str(run), len(texts), examples.num_tokens, base, removal, gradient, entropy, distance, curves)


@dataclass(frozen=True)
class LayerProbe:
    """The linear CKA of every layer of a run with every layer of the same or another run, and how alike positions are."""

    runs: tuple[str, str]  # rows, columns
    sentences: int
    tokens: dict[str, int]
    similarity: dict[str, list[list[float]]]  # layer 0 is the input of the first layer
    noise: dict[str, float]  # the similarity that independent noise of these sizes would have
    positions: dict[
        str, list[list[float]]
    ]  # of each run and layer: the mean cosine between two positions of a sentence

    def as_data(self) -> dict[str, Any]:
        """Return what is written as JSON."""
        return {"probe": "layers", "measure": "linear CKA", **asdict(self)}

    def as_text(self) -> str:
        """Return a table per stack."""
        lines = [f"linear CKA on {counted(self.sentences, 'sentence')}; layer 0 is the input of the first layer"]
        for stack, grid in self.similarity.items():
            size = f"{counted(self.tokens[stack], 'token')}; independent noise would have {self.noise[stack]:.3f}"
            lines += ["", f"{stack}: {self.runs[0]} down, {self.runs[1]} across ({size})"]
            lines.append("     " + "".join(f"{number:7}" for number in range(len(grid[0]))))
            lines += [f"{number:5}" + "".join(f"{one:7.3f}" for one in row) for number, row in enumerate(grid)]
            for run, alike in zip(self.runs, self.positions[stack], strict=False):
                lines.append(f"mean cosine between two positions of a sentence, {run}, layer by layer:")
                lines.append("     " + "".join(f"{one:7.3f}" for one in alike))
        return "\n".join(lines)


def probe_layers(
    run: Path | str,
    data: Path,
    *,
    other: Path | str | None = None,
    sentences: int = 200,
    report: Report = lambda *_: None,
    warn: Callable[[str], None] = warn_caller,
) -> LayerProbe:
    """Compare the layers of a translation run with each other, or with those of another run, on the first pairs of a file.

    Both runs must split the text into the same tokens: a sentence that they split differently is left out, with a warning.
    """
    runs = [run] if other is None else [run, other]
    translators = [
        load_translator(one, "probe layers", device="cpu", engine="torch", precision="float32", warn=warn)
        for one in runs
    ]
    for name, translator in zip(runs, translators, strict=True):
        if not isinstance(translator.model, Transformer):
            raise ConfigError(
                f"{name} is not a Transformer with an encoder and a decoder; only these have layers to probe"
            )
    directions = [_directions(one) for one in runs]
    if all(directions) and len(set(map(frozenset, directions))) > 1:
        mine, theirs = (" and ".join(" to ".join(pair) for pair in pairs) for pairs in directions)
        warn(f"{run} translates {mine}, and {other} {theirs}; both are probed with the sentences of {run}")
    pairs = list(zip(*read_texts(run, data, sentences), strict=True))
    same = [pair for pair in pairs if len({_split(translator, *pair) for translator in translators}) == 1]
    if not same:
        raise DataError(
            f"{run} and {other} split every sentence of {data} into different tokens; give runs that share a tokenizer"
        )
    if len(same) < len(pairs):
        warn(
            f"{run} and {other} split {len(pairs) - len(same):,} of {len(pairs):,} sentences differently; these are left out"
        )
    every = []
    for translator in translators:
        assert isinstance(translator.model, Transformer), "was checked above"
        encoded, outputs, _ = translator.encode_pairs(
            [one for one, _ in same], [one for _, one in same], SearchOptions()
        )
        every.append(layer_states(translator.model, Examples(encoded, outputs), report))
    first, second = every[0], every[-1]
    sizes = {stack: [(*one[stack].layers[0].shape,) for one in (first, second)] for stack in STACKS}
    for stack, ((tokens, _), (others, _)) in sizes.items():
        if tokens != others:
            raise ConfigError(
                f"the {stack} of {run} reads {counted(tokens, 'token')}, and that of {other} {others:,}; both must read "
                "the same: compare runs with equal tags, source_eos and max_positions"
            )
    report("similarity", 0, len(STACKS))
    return LayerProbe(
        (str(runs[0]), str(runs[-1])),
        len(same),
        {stack: sizes[stack][0][0] for stack in STACKS},
        {stack: similarities(first[stack].layers, second[stack].layers) for stack in STACKS},
        {stack: noise_similarity(sizes[stack][0][0], sizes[stack][0][1], sizes[stack][1][1]) for stack in STACKS},
        {stack: [one[stack].position_similarity() for one in every] for stack in STACKS},
    )


def _directions(run: Path | str) -> tuple[tuple[str, str], ...]:
    """Return the languages that a run translates, as far as they are known."""
    data = find_run(run).recipe().data
    return data.language_pairs or tuple(filter(None, [languages_of(data, Path(run).name)]))


def _split(translator: Translator, source: str, target: str) -> tuple[tuple[str, ...], ...]:
    """Return the tokens of a pair."""
    sides = zip((translator.tokenizers.source, translator.tokenizers.target), (source, target), strict=True)
    return tuple(tuple(tokenizer.tokens(tokenizer.encode(text))) for tokenizer, text in sides)
