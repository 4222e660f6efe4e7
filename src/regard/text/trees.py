"""Constituency trees as lines of tokens: brackets with labels, and a placeholder for each word (Vinyals et al. 2015).

    (S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S       John has a dog .

"(X" opens a constituent with the label X and ")X" closes it; any other token is a word. A line without words of its own
keeps the vocabulary small, and the words follow from their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WORD = "XX"
ADDED_ROOT = "TOP"  # EVALB does not count it


class Constituent(NamedTuple):
    """A label over the words from `begin` to `end`, the end excluded."""

    label: str
    begin: int
    end: int
    token: int = -1  # the place of its opening bracket in the tokens it was read from; -1: it was added


class Tree(NamedTuple):
    """Constituents in the order of their opening brackets. None is empty, and the first one, the root, has all words."""

    num_words: int
    constituents: tuple[Constituent, ...]


def opens(token: str) -> bool:
    """Whether a token opens a constituent."""
    return token.startswith("(") and len(token) > 1


def closes(token: str) -> bool:
    """Whether a token closes a constituent."""
    return token.startswith(")") and len(token) > 1


def repair(tokens: Sequence[str], num_words: int) -> Tree:
    """Return the tree over `num_words` words that these tokens describe, or nearly describe.

    A closing bracket closes the innermost open constituent with its label and all inside it; without one it is dropped.
    Constituents that stay open end with the last word that the tokens have. Words beyond `num_words` are dropped, and
    missing ones are added to the root. Empty constituents are dropped. If no constituent has all words, a root is added.
    """
    if num_words == 0:
        return Tree(0, ())
    labels: list[str] = []
    begins: list[int] = []
    ends: list[int] = []
    places: list[int] = []
    stack: list[int] = []
    words = 0
    for place, token in enumerate(tokens):
        if opens(token):
            stack.append(len(labels))
            labels.append(token[1:])
            begins.append(words)
            ends.append(words)
            places.append(place)
        elif closes(token):
            if any(labels[number] == token[1:] for number in stack):
                closed = ""
                while closed != token[1:]:
                    number = stack.pop()
                    ends[number], closed = words, labels[number]
        elif words < num_words:
            words += 1
    for number in stack:
        ends[number] = words
    read = map(Constituent, labels, begins, ends, places)
    found = [one for one in read if one.begin < one.end]
    if found and (found[0].begin, found[0].end) == (0, words):
        found[0] = found[0]._replace(end=num_words)
    else:
        found.insert(0, Constituent(ADDED_ROOT, 0, num_words))
    return Tree(num_words, tuple(found))


def linearize(tree: Tree, words: Sequence[str] | None = None) -> str:
    """Return the tree as a line of tokens, with these words in it, or with placeholders."""
    tokens: list[str] = []
    stack: list[Constituent] = []
    waiting = list(reversed(tree.constituents))
    for place in range(tree.num_words + 1):
        while stack and stack[-1].end == place:
            tokens.append(f"){stack.pop().label}")
        while waiting and waiting[-1].begin == place:
            stack.append(waiting.pop())
            tokens.append(f"({stack[-1].label}")
        if place < tree.num_words:
            tokens.append(WORD if words is None else _escaped(words[place]))
    return " ".join(tokens)


def _escaped(word: str) -> str:
    """Return a word that cannot be taken for a bracket, as the Penn Treebank writes it."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def without_words(line: str) -> str:
    """Return a linearized tree with placeholders for its words. A word alone, as some treebanks have it, gets a root."""
    line = " ".join(token if opens(token) or closes(token) else WORD for token in line.split())
    return f"({ADDED_ROOT} {WORD} ){ADDED_ROOT}" if line == WORD else line


def is_well_formed(line: str, num_words: int) -> bool:
    """Whether a line is a tree over so many words as it is: nothing in it needs repair."""
    return without_words(line) == linearize(repair(line.split(), num_words))
