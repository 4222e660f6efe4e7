"""Probe a run: how important each attention head is, where it attends, and how well the run translates without heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.config import EvaluateConfig, SearchOptions
from regard.errors import ConfigError
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
from regard.loading import load_translator
from regard.messages import counted, warn_caller
from regard.metrics.text import bleu
from regard.models.base import Seq2Seq
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
        by_entropy, by_distance = (sorted(one, key=lambda head: one[head]) for one in (self.entropy, self.distance))
        lines = [
            f"{len(order)} heads; loss per target token {self.loss:.3f} on {counted(self.sentences, 'sentence')}",
            f"most important   {named(order[:-6:-1], self.removal, '+.3f')}",
            f"least important  {named(order[:5], self.removal, '+.3f')}",
            f"lowest entropy   {named(by_entropy[:5], self.entropy, '.2f')}",
            f"highest entropy  {named(by_entropy[:-6:-1], self.entropy, '.2f')}",
            f"nearest          {named(by_distance[:5], self.distance, '.1f')}",
            f"farthest         {named(by_distance[:-6:-1], self.distance, '.1f')}",
            "",
            "heads removed" + "".join(f"{f'by {name}':>22}" for name in self.curves),
            " " * 13 + f"{'loss':>14}{'BLEU':>8}" * len(self.curves),
        ]
        for row in zip(*self.curves.values(), strict=True):
            cells = "".join(f"{one.loss:14.3f}{one.bleu:8.1f}" for one in row)
            lines.append(f"{row[0].removed:13}{cells}")
        return "\n".join(lines)


def named(heads: list[Head], values: Mapping[Head, float], form: str) -> str:
    """Return heads with their values: "encoder 1.2 (0.31), decoder 3.4 (0.52)"."""
    return ", ".join(f"{head} ({values[head]:{form}})" for head in heads)


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
        raise ConfigError(f"{run} is no Transformer with an encoder and a decoder; only these have heads to probe")
    languages = languages_of(find_run(run).recipe().data, Path(run).name)
    pairs = list(islice(stream_pairs(data, languages=languages, report=TextReport()), sentences))
    texts, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
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

    def score() -> float:
        found = translator.translate(texts, options=SearchOptions(beam=1))
        return bleu(found, references, texts, EvaluateConfig())[0]

    at = points_of(len(heads), points)
    curves: dict[str, list[PruningPoint]] = {}
    for name, order in orders.items():
        curves[name] = []
        for point in pruning_curve(model, examples, order, at, score):
            curves[name].append(point)
            report(f"removing heads by {name}", len(curves[name]), len(at))
    base = loss_per_token(model, examples)
    return HeadProbe(str(run), len(pairs), examples.num_tokens, base, removal, gradient, entropy, distance, curves)
