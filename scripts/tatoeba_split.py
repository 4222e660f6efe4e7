"""Split Tatoeba's sentence pairs as the recipes tatoeba-de-en, tatoeba-en-de and tatoeba-zh-en expect them: docs/data.md.

python scripts/tatoeba_split.py deu.txt ~/data/tatoeba_en_de
python scripts/tatoeba_split.py cmn.txt ~/data/tatoeba_en_zh

The name of the folder ends in the languages. Pairs that share a sentence of either language, lower-cased, form a group, and
a group is never divided. So no test sentence, on either side, is in the training set. The split and its order follow from
the text alone.
"""

from __future__ import annotations

import hashlib
import sys
from collections import defaultdict
from pathlib import Path

PER_THOUSAND = {"test": range(15), "valid": range(15, 30)}  # of the groups; all others are for training
LARGEST_GROUP = 8  # pairs; larger groups are for training
SPACES = str.maketrans("\u00a0\u202f", "  ")  # no-break spaces become plain ones

Pair = tuple[str, str]  # English, the other language


def read_pairs(text: str) -> list[Pair]:
    """Return the distinct pairs of a file: English, tab, the other language. A third column is left out."""
    rows = (line.translate(SPACES).split("\t") for line in text.split("\n") if line.strip())
    return list(dict.fromkeys((row[0].strip(), row[1].strip()) for row in rows))


def split(pairs: list[Pair]) -> dict[str, list[Pair]]:
    """Return the pairs of each part, in a fixed order."""
    parts: dict[str, list[Pair]] = {"train": [], "valid": [], "test": []}
    for group in groups(pairs):
        parts[part_of(group)] += group
    return {name: sorted(part, key=lambda pair: sha1("shuf" + "\t".join(pair))) for name, part in parts.items()}


def groups(pairs: list[Pair]) -> list[list[Pair]]:
    """Return the connected components of pairs that share a sentence (union-find)."""
    above = list(range(len(pairs)))

    def top(number: int) -> int:
        while above[number] != number:
            above[number] = above[above[number]]
            number = above[number]
        return number

    first: dict[tuple[int, str], int] = {}
    for number, pair in enumerate(pairs):
        for side, sentence in enumerate(pair):
            above[top(number)] = top(first.setdefault((side, sentence.lower()), number))
    found: dict[int, list[Pair]] = defaultdict(list)
    for number, pair in enumerate(pairs):
        found[top(number)].append(pair)
    return list(found.values())


def part_of(group: list[Pair]) -> str:
    """Return the part that a group belongs to, by the hash of its first pair in alphabetical order."""
    first = min((english.lower(), other.lower()) for english, other in group)
    number = int(sha1("\t".join(first)), 16) % 1000
    small = len(group) <= LARGEST_GROUP
    return next((name for name, numbers in PER_THOUSAND.items() if small and number in numbers), "train")


def sha1(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def main(source: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, part in split(read_pairs(source.read_text(encoding="utf-8"))).items():
        for side, language in enumerate(("en", out.name.rpartition("_")[2])):
            path = out / f"{name}.{language}"
            path.write_text("".join(f"{pair[side]}\n" for pair in part), encoding="utf-8", newline="\n")
            print(hashlib.sha256(path.read_bytes()).hexdigest(), len(part), path)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
