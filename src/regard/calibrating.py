"""`regard calibrate`: fit the temperature of a translation run, measure what it changes, and store it in the run folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from regard.config import Recipe
from regard.decoding.calibration import BINS, Batches, fit_temperature, reliability
from regard.decoding.forced_decoding import forced_batches
from regard.decoding.translator import Translator
from regard.errors import CheckpointError, ConfigError, DataError
from regard.loading import load_translator
from regard.messages import warn_caller
from regard.models.base import Seq2Seq
from regard.run.finding import pretrained_models
from regard.run.folder import CALIBRATION, RunFolder
from regard.tasks.corpus import load_tagged, read_corpus, read_valid
from regard.text.bitext import data_folders, new_report, pairs_fingerprint, refuse_outside
from regard.text.corpus import read_pairs
from regard.text.languages import languages_of
from regard.text.pair import Pair

MOST_PAIRS = 2000  # of the dev set


@dataclass(frozen=True)
class CalibrationTest:
    """What the temperature changes on a test set. Errors are from 0 to 1; likelihoods are per token."""

    name: str
    num_pairs: int
    num_tokens: int
    sha256: str  # of the pairs, as in the fingerprint of the training text
    error_before: float  # expected calibration error
    error_after: float
    nll_before: float  # negative log-likelihood
    nll_after: float


@dataclass(frozen=True)
class Calibration:
    """The temperature of a run, and how it was found."""

    temperature: float
    step: int  # of training; the temperature is for the weights of this step only
    bins: int
    dev: Mapping[str, int | str]  # number and hash of the pairs
    tests: Sequence[CalibrationTest]

    def as_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n"


def calibrate(
    run: Path | str,
    *,
    data: Path | str | None = None,
    pairs: Path | str | None = None,
    test: Path | str | None = None,
    most: int = MOST_PAIRS,
    device: str = "auto",
    warn: Callable[[str], None] = warn_caller,
) -> Calibration:
    """Fit a temperature to a run's dev set, measure it on its test sets, and write both to calibration.json.

    `pairs` and `test` are files in place of the recipe's sets. Pairs without a test set are divided: every other one is
    for testing. `most` pairs of the dev set are used. Only a finished run is calibrated.
    """
    if str(run) in pretrained_models() and not RunFolder(run).exists:
        raise ConfigError(
            f"{run} comes with the package, and is calibrated; for your own text: regard export {run} --out mine"
        )
    folder = RunFolder(run).require()
    if not folder.finished:
        raise CheckpointError(f"{folder} has not finished training; its final weights are calibrated, so wait for them")
    dev, tests = _read_sets(folder.recipe(), Path(run), data, pairs, test, warn)
    translator = load_translator(run, "calibrate", device=device, warn=warn, engine="torch")
    dev = dev[:most]
    temperature = fit_temperature(_batches(translator, dev))
    results = []
    for name, examples in tests.items():
        before, after = reliability(_batches(translator, examples), (1.0, temperature))
        results.append(
            CalibrationTest(
                name=name,
                num_pairs=len(examples),
                num_tokens=before.tokens,
                sha256=str(pairs_fingerprint(examples)["sha256"]),
                error_before=before.error,
                error_after=after.error,
                nll_before=before.negative_log_likelihood,
                nll_after=after.negative_log_likelihood,
            )
        )
    checkpoint, _ = folder.weights()
    step = int(checkpoint.counters.get("step", 0))
    found = Calibration(temperature, step, BINS, pairs_fingerprint(dev), results)
    folder.write_extras({CALIBRATION: found.as_json()})
    return found


def _read_sets(
    recipe: Recipe,
    run: Path,
    data: Path | str | None,
    pairs: Path | str | None,
    test: Path | str | None,
    warn: Callable[[str], None],
) -> tuple[list[Pair], dict[str, list[Pair]]]:
    """Return the dev set and the test sets: those of the files given, or of the recipe."""
    config, folders, report = recipe.data, data_folders(data, None), new_report(recipe.data)
    languages = languages_of(config, run.name)
    if pairs is not None:
        dev = read_pairs(Path(pairs), languages=languages, report=report)
    else:
        for bitext in config.dev_sets:
            refuse_outside(bitext, folders, recipe_of=str(run))
        held_out = any(one.hold_out for one in config.dev_sets)
        dev = read_corpus(recipe, folders).valid if held_out else read_valid(recipe, folders, report)
    if test is not None:
        tests = {Path(test).name: read_pairs(Path(test), languages=languages, report=report)}
    elif pairs is not None:
        dev, tests = dev[::2], {Path(pairs).name: dev[1::2]}
    else:
        for bitext in config.test.values():
            refuse_outside(bitext, folders, recipe_of=str(run))
        tests = {name: load_tagged(bitext, config, folders, report) for name, bitext in config.test.items()}
        if not tests and dev:
            dev, tests = dev[::2], {"valid": dev[1::2]}
    if not dev or not all(tests.values()):
        raise DataError(f"there are too few pairs to calibrate {run}; name at least two with --pairs")
    for sentence in report.sentences():
        warn(sentence)
    return dev, tests


def _batches(translator: Translator, pairs: Sequence[Pair]) -> Batches:
    """Return a function that makes passes over the references of pairs."""
    sources, outputs = list[list[int]](), list[list[int]]()
    for tags in dict.fromkeys(pair.tags for pair in pairs):
        some = [pair for pair in pairs if pair.tags == tags]
        chosen = translator.with_tags(tags) if tags else translator
        texts, targets = [pair.source for pair in some], [pair.target for pair in some]
        encoded, references, _ = chosen.encode_pairs(texts, targets, chosen.options)
        sources, outputs = sources + encoded, outputs + references
    model = translator.model
    assert isinstance(model, Seq2Seq), "autoregressive() has refused the others"
    return partial(forced_batches, model, sources, outputs, tokens=translator.options.tokens)
