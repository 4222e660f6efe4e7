"""A generated corpus of reviews in which exactly one sentence decides the label.

    my aunt found the tea lovely | we ordered the soup at noon | i found the soup awful   →   bad

The label is the opinion of the writer: the one sentence in which "i" or "we" finds, calls or considers something good or
bad. The other sentences use the same words in other roles: other people have opinions, the writer does things without an
opinion, the writer asks for the opinion of others, and others claim what the writer's opinion was. Their good and bad
words are drawn independently of the label, so no word and no sentence but the deciding one says anything about it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from regard.config import Struct, between
from regard.errors import DataError
from regard.text.draws import below, choose
from regard.text.segmenter import join_sentences, split_sentences

ADJECTIVES = {
    "good": ("lovely", "superb", "splendid", "delightful", "excellent", "perfect"),
    "bad": ("awful", "dreadful", "dull", "horrible", "poor", "terrible"),
}
WRITER = ("i", "we")
OTHERS = (
    *("my aunt", "my brother", "the waiter", "a friend", "our guide", "the guests", "her mother", "the children"),
    *("an old man", "the cook", "his uncle", "our neighbours"),
)
THINGS = (
    *("the soup", "the tea", "the bread", "the garden", "the music", "the room", "the view", "the cake"),
    *("the beach", "the museum", "the market", "the wine"),
)
OPINIONS = ("found", "called", "considered")
ACTIONS = ("ordered", "saw", "described", "photographed", "remembered", "paid for")
TIMES = ("at noon", "in the evening", "after the rain", "last week", "on sunday", "before the concert", "again")

SEEDS = {"train": 1, "valid": 2, "test": 3}
HELD_OUT = {"valid": 500, "test": 1000}


class ReviewOptions(Struct, frozen=True):
    """How many training documents there are, and how long documents are."""

    size: int = 8000  # documents of the training split
    shortest: int = 4  # fewest sentences of a document
    longest: int = 10  # most sentences of a document

    def check(self) -> None:
        between(self, 1, 1_000_000, "size")
        between(self, 1, 100, "shortest", "longest")
        if self.shortest > self.longest:
            raise ValueError(f"shortest is {self.shortest}, more than longest ({self.longest}); exchange them")


def generate(split: str, options: ReviewOptions, epoch: int) -> Iterator[tuple[str, str]]:
    """Yield (document, label)."""
    draw = random.Random(SEEDS[split] + len(SEEDS) * epoch)
    for _ in range(HELD_OUT.get(split, options.size)):
        yield _document(draw, options)


def deciding_sentence(document: str) -> int:
    """Return the number of the sentence that decides, counted from 0."""
    found = [number for number, sentence in enumerate(split_sentences(document)) if _decides(sentence.split())]
    if len(found) != 1:
        raise DataError(f"{document[:80]!r} is not one of the generated reviews: {len(found)} sentences decide")
    return found[0]


def _decides(words: Sequence[str]) -> bool:
    return words[0] in WRITER and words[1] in OPINIONS


def _document(draw: random.Random, options: ReviewOptions) -> tuple[str, str]:
    count = options.shortest + below(draw, 1 + options.longest - options.shortest)
    sentences = [choose(draw, KINDS)(draw) for _ in range(count)]
    label = choose(draw, tuple(ADJECTIVES))
    sentences[below(draw, count)] = _verdict(draw, label)
    return join_sentences(sentences), label


def _action(draw: random.Random) -> str:
    who = choose(draw, WRITER) if draw.random() < 0.5 else choose(draw, OTHERS)
    return f"{who} {choose(draw, ACTIONS)} {choose(draw, THINGS)} {choose(draw, TIMES)}"


def _opinion_of_another(draw: random.Random) -> str:
    return f"{choose(draw, OTHERS)} {choose(draw, OPINIONS)} {choose(draw, THINGS)} {_adjective(draw)}"


def _question(draw: random.Random) -> str:
    return f"{choose(draw, WRITER)} asked {choose(draw, OTHERS)} whether {choose(draw, THINGS)} was {_adjective(draw)}"


def _claim(draw: random.Random) -> str:
    return f"{choose(draw, OTHERS)} claimed that {_verdict(draw, choose(draw, tuple(ADJECTIVES)))}"


def _verdict(draw: random.Random, label: str) -> str:
    return f"{choose(draw, WRITER)} {choose(draw, OPINIONS)} {choose(draw, THINGS)} {choose(draw, ADJECTIVES[label])}"


def _adjective(draw: random.Random) -> str:
    return choose(draw, ADJECTIVES[choose(draw, tuple(ADJECTIVES))])


KINDS = (_action, _opinion_of_another, _question, _claim)
