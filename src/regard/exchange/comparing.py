"""Comparing an exported model, in the engine that it was made for, with ours.

Shapes: T target tokens, EOS included, V symbols of the target vocabulary.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import EvaluateConfig, SearchOptions
from regard.data.batch import make_batch
from regard.data.budget import batches_by_length
from regard.data.ragged import Ragged
from regard.decoding.search import search_all
from regard.errors import CheckpointError
from regard.exchange.certificate import Line, Measured
from regard.metrics.text import bleu
from regard.models.base import TextSeq2Seq
from regard.text.symbols import EOS

MOST_LOGITS = 8_000_000  # that are compared
MAX_SECONDS = 3600  # of an engine
BEAMS = ("ctranslate2", "huggingface")  # engines that search with beams


@dataclass(frozen=True)
class Ours:
    """What our model says of the held-out lines."""

    greedy: list[list[int]]
    scores: list[list[float]]  # of each token of `greedy`, and of EOS
    logits: list[NDArray[np.float32]]  # [T, V], of the first lines
    beams: list[list[int]]
    seconds: float  # that greedy search took


@dataclass(frozen=True)
class EngineRequest:
    """What an engine is asked."""

    engine: str
    weights: str
    folder: str
    lines: Sequence[str]
    targets: Sequence[Sequence[str]]  # outputs to score
    symbols: Sequence[str]  # of the target vocabulary
    start: str
    end: str
    limit: int  # the most tokens of an output
    threads: int
    beam: int = 1
    penalty: float = 0.0
    logits: int = 0  # lines whose logits are wanted


@dataclass(frozen=True)
class Theirs:
    """What an engine says of the held-out lines."""

    versions: dict[str, str]
    sources: list[list[str]]
    greedy: list[list[str]]
    texts: list[str]
    scores: list[list[float]]
    seconds: float
    beams: list[list[str]] = field(default_factory=list)
    logits: list[NDArray[np.float32]] = field(default_factory=list)


# Ours


@torch.inference_mode()
def our_outputs(
    model: TextSeq2Seq, fast: TextSeq2Seq, sources: Sequence[list[int]], *, limit: int, beams: SearchOptions | None
) -> Ours:
    """Return what we say of these sources. `model` computes logits, and `fast`, a copy of it for inference, searches."""
    greedy = SearchOptions(beam=1, max_length=limit, max_extra=limit)
    _search(fast, sources[:4], greedy)
    began = time.perf_counter()
    outputs = _search(fast, sources, greedy)
    seconds = time.perf_counter() - began
    scores, logits, room = [], [], MOST_LOGITS
    for source, output in zip(sources, outputs, strict=True):
        batch = make_batch([source], [output], torch.device("cpu"))
        assert batch.target is not None
        logits_TV = model.decode(batch.target, model.encode(batch.source)).float()
        labels_T1 = batch.labels.values[:, None]
        scores.append(logits_TV.double().log_softmax(dim=-1).gather(1, labels_T1)[:, 0].tolist())
        room -= logits_TV.numel()
        if room >= 0:
            logits.append(logits_TV.numpy())
    found = [] if beams is None else _search(fast, sources, beams.replace(max_length=limit, max_extra=limit))
    return Ours(outputs, scores, logits, found, seconds)


def _search(model: TextSeq2Seq, sources: Sequence[list[int]], options: SearchOptions) -> list[list[int]]:
    lengths = np.array([len(ids) + 1 for ids in sources], dtype=np.int64)
    batches = batches_by_length(lengths, max(1, options.tokens // options.beam))
    made = [partial(Ragged.from_lists, [[*sources[n], EOS] for n in batch], torch.device("cpu")) for batch in batches]
    found: dict[int, list[int]] = {}
    for batch, results in search_all(model, made, options=options):
        found |= {int(batches[batch][sentence]): best[0].ids for sentence, best in results}
    return [found[number] for number in range(len(sources))]


# Theirs


def ask_engine(request: EngineRequest) -> Theirs:
    """Run an engine in a process that cannot import regard, and return what it says."""
    script = Path(__file__).with_name("engines.py")
    # Isolated: no PYTHONPATH, no folder of the user's own. The script refuses to import regard.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"OMP_NUM_THREADS": str(request.threads), "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    with TemporaryDirectory(prefix="regard-") as folder:
        asked, said = Path(folder, "request.json"), Path(folder, "result.json")
        asked.write_text(json.dumps(vars(request), ensure_ascii=False), encoding="utf-8")
        command = [sys.executable, "-I", "-W", "ignore", str(script), str(asked), str(said)]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, errors="replace", timeout=MAX_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise CheckpointError(f"{request.engine} took longer than {MAX_SECONDS} s; give fewer lines") from error
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            raise CheckpointError(f"{request.engine} cannot use {request.folder}: {last[:500]}")
        result: dict[str, Any] = json.loads(said.read_text(encoding="utf-8"))
        logits = []
        if request.logits:
            with np.load(f"{said}.npz") as arrays:
                logits = [arrays[str(number)] for number in range(request.logits)]
    return Theirs(**result, logits=logits)


# Both


def compare(
    lines: Sequence[Line],
    theirs: Theirs,
    *,
    limit: int,
    evaluate: EvaluateConfig | None = None,
    logits: Sequence[NDArray[np.float32]] = (),
    beams: Sequence[Sequence[str]] = (),
    beam: int | None = None,
    seconds: float | None = None,
) -> Measured:
    """Return how closely an engine agrees with us. The last arguments are ours, where they are known."""
    differences = [
        abs(ours - their)
        for line, scores in zip(lines, theirs.scores, strict=True)
        for ours, their in zip(line.scores, scores, strict=True)
    ]
    outputs = ([line.output for line in lines], theirs.texts)
    scores = (None, None) if evaluate is None else tuple(_bleu(lines, texts, evaluate) for texts in outputs)
    return Measured(
        lines=len(lines),
        tokens=len(differences),
        logit=_largest(logits, theirs.logits) if logits else None,
        logit_lines=len(logits),
        score=_finite(max(differences)),
        mean_score=_finite(sum(differences) / len(differences)),
        identical=_share([line.tokens for line in lines], theirs.greedy, limit),
        identical_beams=_share(beams, theirs.beams, limit) if beams else None,
        beam=beam if beams else None,
        bleu_ours=scores[0],
        bleu_theirs=scores[1],
        lines_per_second_ours=None if seconds is None else len(lines) / seconds,
        lines_per_second_theirs=len(lines) / theirs.seconds,
    )


def _bleu(lines: Sequence[Line], outputs: Sequence[str], config: EvaluateConfig) -> float | None:
    references = [line.reference for line in lines if line.reference is not None]
    if len(references) < len(lines):
        return None
    return bleu(outputs, references, [line.source for line in lines], config)[0]


def _largest(ours: Sequence[NDArray[np.float32]], theirs: Sequence[NDArray[np.float32]]) -> float:
    return _finite(max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True)))


def _finite(value: float) -> float:
    """Return the value, and a large number for those that JSON does not have."""
    return value if math.isfinite(value) else 1e9


def _share(ours: Sequence[Sequence[str]], theirs: Sequence[Sequence[str]], limit: int) -> float:
    """Return the share of identical outputs. Engines count the limit in different ways, so that longer ones are cut."""
    same = [list(a)[: limit - 1] == list(b)[: limit - 1] for a, b in zip(ours, theirs, strict=True)]
    return sum(same) / len(same)
