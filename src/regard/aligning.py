"""`regard align`: links between the words of translations, and the shortlist of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from regard.data.columns import Column, Columns, pair_columns
from regard.data.word_alignment import Aligner
from regard.decoding.shortlist import MOST, Shortlist
from regard.errors import ConfigError, DataError
from regard.loading import require_translation
from regard.messages import warn_caller
from regard.run.finding import pretrained_models
from regard.run.folder import SHORTLIST, RunFolder
from regard.text.bitext import data_folders, new_report, refuse_outside, stream_bitext
from regard.text.corpus import read_pairs
from regard.text.languages import languages_of
from regard.text.pair import Pair
from regard.text.text_report import TextReport
from regard.text.tokenizer_pair import Tokenizers
from regard.torch_loading import task_of_run

MOST_PAIRS = 500_000  # of a run's training text that its shortlist is learnt from
MAX_WORDS = 256  # longer sentences are not aligned
# A run of letters and digits, a character of a script without spaces, or a mark.
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+(?:['’-]\w+)*|[^\w\s]")
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))

Method = Literal["grow-diag-final-and", "intersection", "union", "source-to-target"]
Link = tuple[int, int]


class WordAlignment(NamedTuple):
    """The words of a pair, and which of them are translations of each other: (source position, target position)."""

    source: list[str]
    target: list[str]
    links: list[Link]


def align(pairs: Sequence[tuple[str, str]], *, method: Method = "grow-diag-final-and") -> list[WordAlignment]:
    """Return the words of each pair and the links between them, learnt from these pairs alone.

    "source-to-target" links each target word to one source word. The other methods combine this with the opposite
    direction: the links of both, of either, or those of both and their neighbours (Koehn et al. 2005). A sentence of more
    than 256 words has no links.
    """
    words = [(WORD.findall(source), WORD.findall(target)) for source, target in pairs]
    ids: dict[str, int] = {}
    sides = [[[ids.setdefault(word.lower(), len(ids)) for word in some[side]] for some in words] for side in (0, 1)]
    source, target = (Column.from_lists(side) for side in sides)
    found = _links(pair_columns(source, target))
    if method != "source-to-target":
        opposite = _links(pair_columns(target, source))
        combine = {"intersection": frozenset.intersection, "union": frozenset.union}.get(method, grow)
        both = zip(found, opposite, strict=True)
        found = [list(combine(frozenset(one), frozenset((s, t) for t, s in other))) for one, other in both]
    return [WordAlignment(*some, sorted(links)) for some, links in zip(words, found, strict=True)]


def _links(columns: Columns) -> list[list[Link]]:
    return Aligner.learn(columns, max_length=MAX_WORDS).links(columns)


def grow(first: frozenset[Link], second: frozenset[Link]) -> frozenset[Link]:
    """Return the links of both directions, grown to neighbours that either of them has ("grow-diag-final-and")."""
    links, either = set(first & second), first | second
    sources, targets = {s for s, _ in links}, {t for _, t in links}

    def add(link: Link) -> None:
        links.add(link)
        sources.add(link[0])
        targets.add(link[1])

    grown = True
    while grown:
        grown = False
        for s, t in sorted(links):
            for move in NEIGHBOURS:
                link = s + move[0], t + move[1]
                if link in either and link not in links and (link[0] not in sources or link[1] not in targets):
                    add(link)
                    grown = True
    for direction in (first, second):
        for link in sorted(direction - links):
            if link[0] not in sources and link[1] not in targets:
                add(link)
    return frozenset(links)


def make_shortlist(
    run: Path | str,
    *,
    data: Path | str | None = None,
    pairs: Sequence[Path | str] = (),
    most: int = MOST_PAIRS,
    warn: Callable[[str], None] = warn_caller,
) -> Shortlist:
    """Learn the likely translations of each token, and write them to shortlist.json in the run folder.

    They are learnt from `most` pairs of the text that the run was trained on, or of the files of `pairs`.
    """
    if str(run) in pretrained_models() and not RunFolder(run).exists:
        raise ConfigError(
            f"{run} comes with the package; make a copy of your own first: regard export {run} --out mine"
        )
    require_translation(run, "align")
    folder = RunFolder(run).require()
    tokenizers = task_of_run(folder).load_codec(folder.codec_folder())
    assert isinstance(tokenizers, Tokenizers)
    report = new_report(folder.recipe().data)
    text = list(islice(_read(folder, data, pairs, report), most))
    for sentence in report.sentences():
        warn(sentence)
    if not text:
        raise DataError(f"there are no pairs to learn the shortlist of {run} from")
    source = tokenizers.source.encode_all([one.source for one in text])
    target = tokenizers.target.encode_all([one.target for one in text])
    columns = pair_columns(Column.from_lists(source), Column.from_lists(target))
    aligner = Aligner.learn(columns, max_length=folder.recipe().data.max_length)
    found = Shortlist.learnt(
        columns["target"].values, aligner.translations(MOST), size=tokenizers.target.size, shared=tokenizers.joint
    )
    folder.write_extras({SHORTLIST: msgspec.json.encode(found).decode() + "\n"})
    return found


def _read(
    folder: RunFolder, data: Path | str | None, files: Sequence[Path | str], report: TextReport
) -> Iterator[Pair]:
    """Yield the pairs of the files, or of the run's training text."""
    config, folders = folder.recipe().data, data_folders(data, None)
    if files:
        languages = languages_of(config, folder.path.name)
        return iter(read_pairs([Path(one) for one in files], languages=languages, report=report))
    for one in config.corpora:
        refuse_outside(one, folders, recipe_of=str(folder))
    return chain.from_iterable(
        stream_bitext(one, folders=folders, data=config, report=report) for one in config.corpora
    )
