"""Text of the general domain: files that the user names, or the text that the base run was trained and tested on."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from regard.adapting.splitting import split_pairs, without_duplicates, without_texts_of
from regard.errors import DataError
from regard.run.folder import RunFolder
from regard.text.bitext import data_folders, load_bitext, refuse_outside, stream_bitext
from regard.text.corpus import read_pairs
from regard.text.pair import Pair
from regard.text.text_report import TextReport

MOST_READ = 20_000  # pairs of the general domain, drawn at random from all
MOST_TESTED = 1_000  # in the dev set too: its score decides whether a fall of half a point is tolerated


class GeneralText(NamedTuple):
    """Pairs of the general domain: to train on, to choose by, and to test on."""

    replay: list[Pair]
    dev: list[Pair]
    test: list[Pair]
    origin: str  # in words


def read_general(
    files: Sequence[Path | str], *, languages: tuple[str, str] | None, seed: int, report: TextReport
) -> GeneralText:
    """Return the pairs of files, split as the text of the domain is."""
    paths = [Path(file) for file in files]
    names = ", ".join(path.name for path in paths)
    pairs = sample(read_pairs(paths, languages=languages, report=report), MOST_READ, seed=seed)
    split = split_pairs(pairs, seed=seed, most=MOST_TESTED, origin=f"the general text ({names})")
    return GeneralText(split.train, split.dev, split.test, names)


def text_of_base(base: RunFolder, data: Path | str | None, *, seed: int, report: TextReport) -> GeneralText:
    """Return the text that the base run names, with its own dev and test sets. Raise DataError if it is not found."""
    config, folders = base.recipe().data, data_folders(data, None)
    sets = [*config.corpora, *config.dev_sets, *config.test.values()]
    for one in sets:
        refuse_outside(one, folders, recipe_of=str(base))
    read = chain.from_iterable(
        stream_bitext(one, folders=folders, data=config, report=report) for one in config.corpora
    )
    train = without_duplicates(sample(read, MOST_READ, seed=seed))
    dev = [one for one in config.dev_sets if one.hold_out is None]
    kept = [
        sample(
            chain.from_iterable(load_bitext(one, folders=folders, data=config, report=report) for one in some),
            MOST_TESTED,
            seed=seed,
        )
        for some in (dev, list(config.test.values()))
    ]
    origin = f"the text of {base.recipe().name}"
    if not all(kept):
        split = split_pairs(train, seed=seed, most=MOST_TESTED, origin=origin)
        return GeneralText(split.train, split.dev, split.test, origin)
    random.Random(seed).shuffle(train)
    return GeneralText(without_texts_of(train, *kept), kept[0], kept[1], origin)


def apart_from(general: GeneralText, *sets: Sequence[Pair]) -> GeneralText:
    """Return the general text without pairs that share a text with the sets of the domain."""
    kept = [without_texts_of(part, *sets) for part in (general.replay, general.dev, general.test)]
    if not kept[1] or not kept[2]:
        raise DataError(
            f"{general.origin} and the text to adapt to are the same, so that a loss cannot be measured; name text of "
            "the general domain with --general"
        )
    return GeneralText(kept[0], kept[1], kept[2], general.origin)


def sample(pairs: Iterable[Pair], most: int, *, seed: int) -> list[Pair]:
    """Return at most so many pairs, each equally likely, while holding no more than these in memory."""
    draw, kept = random.Random(seed), list[Pair]()
    for number, pair in enumerate(pairs):
        if len(kept) < most:
            kept.append(pair)
        elif (place := draw.randrange(number + 1)) < most:
            kept[place] = pair
    return kept
