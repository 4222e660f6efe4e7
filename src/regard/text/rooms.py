"""A small world as stories with questions: people walk between rooms, pick things up and put them down.

    facts = 1   Where is Mary?                             the room she went to last
    facts = 2   Where is the milk?                         where the one who had it last took it
    facts = 3   Where was the milk before the kitchen?     the room it was in before it was last brought there

The words, and the answers, are those of the first three bAbI tasks (Weston et al. 2015), so that a model which is trained on
these stories can be tested on those. Each story has steps of two sentences, and several questions; each question
is an example with all sentences before it. A story belongs to the split that its first step belongs to, so no story of a
split occurs in another one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import TypeVar
from zlib import crc32

from regard.config import Struct, between
from regard.text.draws import choose
from regard.text.segmenter import join_sentences

PEOPLE = ("Daniel", "John", "Mary", "Sandra")
ROOMS = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
THINGS = ("apple", "football", "milk")
WALK = ("moved to", "went to", "journeyed to", "travelled to", "went back to")
TAKE = ("got", "grabbed", "took", "picked up")
DROP = ("left", "dropped", "discarded", "put down")

QUESTIONS = 5  # per story
HELD_OUT = 1000  # examples of the splits "valid" and "test"
_SEEDS = {"train": 11, "valid": 12, "test": 13}

T = TypeVar("T")


class RoomsOptions(Struct, frozen=True):
    """How many facts a question needs, and how many examples the training split has in an epoch."""

    facts: int = 1
    size: int = 10_000

    def check(self) -> None:
        between(self, 1, 3, "facts")
        between(self, 1, 1_000_000, "size")


class StoryWorld:
    """Where everybody and everything is, and what a listener knows of it."""

    def __init__(self, drawn: random.Random, facts: int) -> None:
        self.drawn, self.facts = drawn, facts
        self.room_of = {one: self.choose(ROOMS) for one in (*PEOPLE, *THINGS)}
        self.holder: dict[str, str] = {}
        # The rooms that the story says someone or something was in, in order, each different from the one before it.
        self.told: dict[str, list[str]] = {one: [] for one in (*PEOPLE, *THINGS)}

    def choose(self, some: Sequence[T]) -> T:
        return choose(self.drawn, some)

    def step(self) -> list[str]:
        """Let two things happen, and return the sentences that tell them."""
        return [self.happen(), self.happen()]

    def pause(self) -> int:
        """Return how many steps pass before the next question: none for a question about people, else none or several."""
        if self.facts == 1 or self.drawn.random() < 0.5:
            return 0
        mean = 2.0 if self.facts == 2 else 8.0
        return int(-mean * math.log(1 - self.drawn.random()))

    def happen(self) -> str:
        """Let one thing happen, and return the sentence that tells it."""
        person = self.choose(PEOPLE)
        there = " there" if self.drawn.random() < 0.2 else ""
        if self.facts > 1 and self.drawn.random() < 0.6:
            room = self.room_of[person]
            lying = [one for one in THINGS if one not in self.holder and self.room_of[one] == room]
            held = [one for one in THINGS if self.holder.get(one) == person]
            if lying:
                thing = self.choose(lying)
                self.holder[thing] = person
                self._tell(thing, *self.told[person][-1:])
                return f"{person} {self.choose(TAKE)} the {thing}{there}."
            if held and self.drawn.random() < 0.5:
                thing = self.choose(held)
                del self.holder[thing]
                return f"{person} {self.choose(DROP)} the {thing}{there}."
        return self._walk(person)

    def _walk(self, person: str) -> str:
        room = self.choose([room for room in ROOMS if room != self.room_of[person]])
        for one in (person, *(thing for thing, holder in self.holder.items() if holder == person)):
            self.room_of[one] = room
            self._tell(one, room)
        return f"{person} {self.choose(WALK)} the {room}."

    def _tell(self, one: str, *rooms: str) -> None:
        self.told[one] += [room for room in rooms if self.told[one][-1:] != [room]]

    def question(self) -> tuple[str, str] | None:
        """Return a question and its answer, or None if the story has not told enough."""
        rooms = {one: self.told[one] for one in (PEOPLE if self.facts == 1 else THINGS)}
        known = [one for one, told in rooms.items() if len(told) >= max(1, self.facts - 1)]
        if not known:
            return None
        one = self.choose(known)
        if self.facts < 3:
            return f"Where is {one}?" if self.facts == 1 else f"Where is the {one}?", rooms[one][-1]
        told = rooms[one]
        # Mostly the room that it was brought to last.
        later = told[-1] if self.drawn.random() < 0.7 else self.choose(told[1:])
        last = len(told) - 1 - told[::-1].index(later)
        return f"Where was the {one} before the {later}?", told[last - 1]


def generate(split: str, options: RoomsOptions, epoch: int) -> Iterator[tuple[str, str]]:
    """Yield stories that end in a question, and their answers."""
    drawn = random.Random(f"{_SEEDS[split]} {options.facts} {epoch}")
    left = options.size if split == "train" else HELD_OUT
    while left > 0:
        world = StoryWorld(drawn, options.facts)
        first = world.step()
        if split_of(first) == split:
            for pair in _examples(world, first, min(left, QUESTIONS)):
                left -= 1
                yield pair


def split_of(first: Sequence[str]) -> str:
    """Return the split that a story belongs to, which follows from its first step."""
    return {0: "test", 1: "valid"}.get(crc32(join_sentences(first).encode()) % 10, "train")


def _examples(world: StoryWorld, first: Sequence[str], questions: int) -> Iterator[tuple[str, str]]:
    """Continue a story, and yield it with each question that is asked, and the answer."""
    sentences, steps = list(first), world.pause()
    while questions:
        for _ in range(steps):
            sentences += world.step()
        if (asked := world.question()) is not None:
            questions -= 1
            yield join_sentences([*sentences, asked[0]]), asked[1]
        steps = 1 + world.pause()
