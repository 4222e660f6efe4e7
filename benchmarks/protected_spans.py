"""Translate generated sentences with protected spans, and count those whose spans come back intact.

python benchmarks/protected_spans.py --out benchmarks/results/protected-spans.json

Templates of everyday sentences, half English and half German, get one to three spans: URLs, e-mail addresses, numbers,
printf and brace variables, emoji, inline tags and code. A sentence counts as intact if each span is in the output as often
as in the source, and inline tags are in order. A lost span that the translator reports is counted as well.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path

from machine import machine
from regard.decoding.translator import Translation
from regard.loading import load_translator

# "{}" is a place for a span.
TEMPLATES = {
    "en-de": [
        "Please visit {} for more.",
        "My address is {}, not {}.",
        "I have {} books and {} pens.",
        "{} is not here today.",
        "The file {} was not found.",
        "Tom said that {} is at {}.",
        "I love you {}!",
        "Do you know {}?",
        "We met at {} in Boston. {}",
        "{} Thank you very much.",
        "Send {} to {} before {}.",
        "This is {}important{} for us.",
        "Read {}this book{} first, then {}that one{}.",
    ],
    "de-en": [
        "Bitte besuchen Sie {}.",
        "Meine Adresse ist {}, nicht {}.",
        "Ich habe {} Bücher und {} Stifte.",
        "{} ist heute nicht hier.",
        "Die Datei {} wurde nicht gefunden.",
        "Tom sagte, dass {} bei {} ist.",
        "Ich liebe dich {}!",
        "Kennst du {}?",
        "Wir haben uns um {} in Berlin getroffen. {}",
        "{} Vielen Dank.",
        "Schicke {} an {}, bevor {} kommt.",
        "Das ist {}wichtig{} für uns.",
        "Lies zuerst {}dieses Buch{}, dann {}jenes{}.",
    ],
}
WORDS = ("alpha", "news", "shop", "docs", "team", "main", "user", "total", "name", "count")


def span(draw: random.Random) -> str:
    """Return a random span that is not a tag."""
    word, other, number = draw.choice(WORDS), draw.choice(WORDS), draw.randrange(10, 100_000)
    return draw.choice(
        [
            f"https://{word}.example.org/{other}?id={number}",
            f"www.{word}-{other}.example.com",
            f"{word}.{other}@example.org",
            f"{number}",
            f"{number / 100:.2f}",
            f"{2000 + number % 30}-{1 + number % 12:02}-{1 + number % 28:02}",
            f"{number % 24}:{number % 60:02}",
            "%s",
            "%d",
            f"%({word})s",
            f"{{{word}}}",
            f"${{{word}}}",
            draw.choice("😊👍🎉🚀❤😢🍕"),
            f"`{word}_{other}()`",
        ]
    )


def sentence(template: str, draw: random.Random) -> tuple[str, list[str]]:
    """Return a template with spans in its places, and the spans."""
    if "{}important" in template or "{}wichtig" in template or "{}th" in template or "{}die" in template:
        name = draw.choice(["b", "i", "em", "code"])
        tags = [f"<{name}>", f"</{name}>", "<u>", "</u>"][: template.count("{}")]
        return template.format(*tags), tags
    spans = [span(draw) for _ in range(template.count("{}"))]
    return template.format(*spans), spans


def intact(spans: list[str], output: str) -> bool:
    """Whether an output has each span often enough, and tags in order."""
    tags = [one for one in spans if one.startswith("<")]
    there = all(output.count(one) >= count for one, count in Counter(spans).items())
    return there and sorted(tags, key=output.find) == tags


def measure(run: str, count: int) -> dict[str, object]:
    """Return the counts of one model, and examples of its output."""
    draw = random.Random(f"spans {run}")
    examples = [sentence(TEMPLATES[run][number % len(TEMPLATES[run])], draw) for number in range(count)]
    translator, began = load_translator(run, "translate"), time.perf_counter()
    found: list[Translation] = [best[0] for best in translator.stream([text for text, _ in examples])]
    wrong = [
        (text, one.text, list(one.lost))
        for (text, spans), one in zip(examples, found, strict=True)
        if not intact(spans, one.text)
    ]
    return {
        "sentences": count,
        "intact": count - len(wrong),
        "reported": sum(bool(lost) for _, _, lost in wrong),
        "seconds": round(time.perf_counter() - began, 1),
        "wrong": wrong[:10],
        "examples": [
            (text, one.text) for (text, _), one in list(zip(examples, found, strict=True))[: len(TEMPLATES[run])]
        ],
    }


def main() -> None:
    """Measure both models of the package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="sentences per model")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    result = {run: measure(run, given.count) for run in TEMPLATES}
    for run, one in result.items():
        print(f"{run}: {one['intact']} of {one['sentences']} intact, {one['reported']} of the others reported")
    text = json.dumps({"models": result, "machine": machine()}, indent=1, ensure_ascii=False)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
