"""Proposals of a search: the settings that Optuna tries next, given the scores of those before. None is repeated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from regard.errors import require
from regard.study.study_file import Settings, canonical
from regard.study.tuning.tuning_file import Range, Tuning

DIGITS = 4  # that are kept of a proposed number, so that a file of settings can be read
SEARCH_SEED = 1
MAX_REPEATS = 50  # proposals of settings that were tried before, until others are looked for


def propose(tuning: Tuning, tried: Sequence[tuple[Settings, float]], count: int) -> list[Settings]:
    """Return the next trials, given the settings and the scores of those before; the higher the better.

    There are fewer than `count` if no others are left. Settings that the search no longer has are not asked about.
    """
    optuna = require("optuna", extra="tune")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {key: _distribution(optuna, values) for key, values in tuning.search.items()}
    sampler = optuna.samplers.TPESampler(seed=SEARCH_SEED + len(tried), multivariate=False)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for settings, score in tried:
        if has_settings(tuning, settings):
            params = {key: _index(tuning.search[key], value) for key, value in settings.items()}
            study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=score))
    known = {canonical(settings) for settings, _ in tried}
    found: list[Settings] = []
    repeats = 0
    while len(found) < count and repeats < MAX_REPEATS:
        params = study.ask(space).params
        settings = {key: _value(values, params[key]) for key, values in tuning.search.items()}
        if canonical(settings) in known:
            repeats += 1
        else:
            known.add(canonical(settings))
            found.append(settings)
    others = (settings for settings in _combinations(tuning) if canonical(settings) not in known)
    return found + list(itertools.islice(others, count - len(found)))


def has_settings(tuning: Tuning, settings: Settings) -> bool:
    """Return whether the search could propose these settings."""
    return settings.keys() == tuning.search.keys() and all(
        _has_value(tuning.search[key], value) for key, value in settings.items()
    )


def _has_value(values: Range | list[Any], value: Any) -> bool:
    if isinstance(values, list):
        return canonical(value) in map(canonical, values)
    return isinstance(value, int if values.whole else float) and values.low <= value <= values.high


def _combinations(tuning: Tuning) -> Iterator[Settings]:
    """Yield all settings of a search, one after the other; none if it has a range of fractions."""
    lists = []
    for values in tuning.search.values():
        if isinstance(values, Range) and not values.whole:
            return
        lists.append(values if isinstance(values, list) else range(int(values.low), int(values.high) + 1))
    # Not itertools.product, which would make a list of every range first.
    yield from _products(list(tuning.search), lists)


def _products(keys: Sequence[str], lists: Sequence[Sequence[Any]]) -> Iterator[Settings]:
    if not keys:
        yield {}
        return
    for settings in _products(keys[:-1], lists[:-1]):
        for value in lists[-1]:
            yield {**settings, keys[-1]: value}


def _distribution(optuna: Any, values: Range | list[Any]) -> Any:
    if isinstance(values, list):
        # By number: Optuna's own values may only be scalars, those of a recipe lists too.
        return optuna.distributions.CategoricalDistribution(range(len(values)))
    if values.whole:
        return optuna.distributions.IntDistribution(values.low, values.high, log=values.log)
    return optuna.distributions.FloatDistribution(float(values.low), float(values.high), log=values.log)


def _index(values: Range | list[Any], value: Any) -> Any:
    return list(map(canonical, values)).index(canonical(value)) if isinstance(values, list) else value


def _value(values: Range | list[Any], proposed: Any) -> Any:
    if isinstance(values, list):
        return values[proposed]
    if isinstance(proposed, int):
        return proposed
    # Rounding must not lead out of the range.
    return min(max(float(f"{proposed:.{DIGITS}g}"), float(values.low)), float(values.high))
