"""The verb: compare systems on the same test sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from regard.comparing.comet import comet_metric, load_comet
from regard.comparing.outputs import ComparedSet, compare_outputs
from regard.comparing.report import Comparison
from regard.comparing.result import ComparedSystem
from regard.comparing.systems import System, find_systems, read_outputs, search_of, translate_sets
from regard.comparing.test_sets import SourcesAndReferences, read_test_sets
from regard.comparing.word_frequency import count_words
from regard.config import EvaluateConfig, SearchOptions
from regard.errors import ConfigError
from regard.messages import warn_caller
from regard.metrics.corpus_metrics import CorpusMetric, bleu_metric, chrf_metric, exact_match_metric, ter_metric
from regard.metrics.significance import RESAMPLES, SEED, TRIALS, Sampling, require_whole
from regard.metrics.text import too_short_for_bleu

MOST_SENTENCES = 1_000


def compare(
    *systems: Path | str,
    source: Path | str | None = None,
    reference: Path | str | Sequence[Path | str] | None = None,
    pairs: Path | str | None = None,
    to: str | None = None,
    data: Path | str | None = None,
    options: SearchOptions | None = None,
    device: str = "auto",
    tokenize: str | None = None,
    lowercase: bool | None = None,
    comet: Path | str | None = None,
    training: Path | str | None = None,
    sentences: int = 5,
    seed: int = SEED,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
    warn: Callable[[str], None] = warn_caller,
    tell: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Compare systems on the same sentences: BLEU, chrF and TER, with intervals and paired tests against the first one.

    A system is a translation run, or a file with one translation per line. They are compared on `reference`, one file or
    several, with the sources in `source`; on `pairs`, one table with both; or else on the test sets of the first run's
    recipe. Runs need sources. `tokenize` (that of BLEU) and `lowercase` are by default those of the first run's recipe.
    `comet` names a checkpoint of COMET on disk, and `training` a text whose words are counted for scores by frequency.
    `sentences` is how many that differ most are kept in each direction. `to` is the language to translate into, of models
    that have several. Exact match takes the place of BLEU where no reference is long enough for it. `tell` receives a
    sentence about each step.
    """
    sampling = Sampling(seed, resamples, trials)
    sampling.check()
    require_whole("sentences", sentences, 0, MOST_SENTENCES)
    passed: Sequence[Any] = systems
    for given in passed:
        if not isinstance(given, Path | str):
            kind = type(given).__name__
            raise ConfigError(f"a system is of type {kind}; give each by itself: compare('runs/a', 'b.txt')")
    found = find_systems(systems)
    runs = [one.run for one in found if one.run is not None]
    config = _config(runs[0].recipe().evaluate if runs else EvaluateConfig(), tokenize, lowercase)
    sets = read_test_sets(
        runs,
        only_runs=len(runs) == len(found),
        source=None if source is None else Path(source),
        references=_paths(reference),
        pairs=None if pairs is None else Path(pairs),
        to=to,
        data=None if data is None else Path(data),
        warn=warn,
    )
    # What can be refused is refused before models translate.
    files = {one.name: read_outputs(one, sets) for one in found if one.run is None}
    checkpoint = None if comet is None else Path(comet)
    words = None if training is None else count_words(Path(training), config)
    scorer = None if checkpoint is None else load_comet(checkpoint)
    no_bleu = {one.name: too_short_for_bleu([*chain(*one.references)], config) for one in sets}
    for reason in dict.fromkeys(filter(None, no_bleu.values())):
        warn(f"no BLEU: {reason}; exact match is compared instead")
    metrics = [
        [
            exact_match_metric(one.references) if no_bleu[one.name] else bleu_metric(one.references, config),
            *(chrf_metric(one.references, config), ter_metric(one.references)),
            *_comet(scorer, checkpoint, one, device),
        ]
        for one in sets
    ]

    def outputs(system: System) -> list[list[str]]:
        if system.name in files:
            return [files[system.name]]
        return translate_sets(system, sets, to=to, options=options, device=device, warn=warn, tell=tell)

    by_system = {system.name: outputs(system) for system in found}
    compared: list[ComparedSet] = []
    for number, one in enumerate(sets):
        tell(f"comparing {len(found)} systems on {one.name} ...")
        compared.append(
            compare_outputs(
                one.name,
                {name: every[number] for name, every in by_system.items()},
                one.references,
                metrics[number],
                sources=one.sources,
                sampling=sampling,
                most_sentences=sentences,
                training=words,
            )
        )
    kinds = [ComparedSystem(one.name, one.path, search_of(one, options)) for one in found]
    return Comparison(kinds, sampling, compared)


def _config(config: EvaluateConfig, tokenize: str | None, lowercase: bool | None) -> EvaluateConfig:
    """Return how outputs are scored. Raise ConfigError for a tokenizer that is not known."""
    given = {"bleu_tokenize": tokenize, "lowercase": lowercase}
    table = msgspec.to_builtins(config) | {key: value for key, value in given.items() if value is not None}
    try:
        return msgspec.convert(table, EvaluateConfig)
    except msgspec.ValidationError as error:
        known = "13a, none, intl, char, zh, ja-mecab, ko-mecab"
        raise ConfigError(f"tokenize is {tokenize!r} and lowercase {lowercase!r}; tokenizers: {known}") from error


def _paths(given: Path | str | Sequence[Path | str] | None) -> list[Path]:
    if given is None:
        return []
    return [Path(given)] if isinstance(given, Path | str) else [Path(one) for one in given]


def _comet(model: Any | None, checkpoint: Path | None, one: SourcesAndReferences, device: str) -> list[CorpusMetric]:
    if model is None or checkpoint is None:
        return []
    return [comet_metric(model, checkpoint, one.sources, one.references, device=device)]
