import time

import pytest

from regard.text.protected_spans import MOST_PLACEHOLDERS, PLACEHOLDERS, find_spans, lost_spans, mask, placeholder_ids
from regard.text.tokenizer import train_tokenizer

KINDS = {
    "url": ["https://example.org/a?b=1&c=2#d", "http://localhost:8080", "www.example.org", "https://en.wiki/A_(b)"],
    "e-mail": ["anna@example.org", "a.b+c@mail.example.co.uk"],
    "number": ["4711", "3.14", "1,000.50", "-4", "2026-11-16", "12:30", "50%", "$5.50", "2/3"],
    "format": ["%s", "%d", "%1$s", "%(name)s", "%5.2f"],
    "variable": ["{name}", "{}", "{0}", "{{ user }}", "${HOME}", "$PATH", "%USER%"],
    "tag": ["<b>", "</b>", '<a href="https://example.org">', "<br/>", "&nbsp;", "&#39;"],
    "code": ["`ls -l`", "`a + b`"],
    "emoji": ["😊", "👍🏽", "👨‍👩‍👧", "🇩🇪", "☀️", "❤"],
}


@pytest.mark.parametrize(("kind", "span"), [(kind, span) for kind, spans in KINDS.items() for span in spans])
def test_a_span_is_found_in_a_sentence_without_the_marks_around_it(kind, span):
    for text in (f"See {span} now.", f"See {span}.", f"{span}, see", f"It is ({span})!"):
        assert [(one.kind, one.text) for one in find_spans(text)] == [(kind, span)]


@pytest.mark.parametrize(
    "text",
    [
        "The 3rd of the 1990s, B2B, x86 and v1.2",
        "a < b and b > c",
        "sure, 100 is",
        "→ ≥ — “x” … 東京、です。",
        "100th %",
    ],
)
def test_words_with_digits_and_other_marks_are_not_protected(text):
    assert [one.text for one in find_spans(text)] in ([], ["100"])


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Open <b>{file}</b>!", "Open ⟦1⟧ ⟦2⟧ ⟦3⟧!"),
        ("Click <a>here</a>now", "Click ⟦1⟧ here ⟦2⟧ now"),
        ("1, 2 and 3", "⟦1⟧, ⟦2⟧ and ⟦3⟧"),
        ("the symbol ⟦7⟧ itself", "the symbol ⟦1⟧ itself"),
        ("none", "none"),
    ],
)
def test_restoring_a_masked_text_gives_the_text(text, masked):
    assert mask(text).text == masked
    assert mask(text).restore(masked) == text


def test_an_output_gets_the_spans_in_its_own_order():
    masked = mask("Tom sent <i>%s</i> to anna@example.org.")
    assert masked.restore("An ⟦4⟧ schickte Tom ⟦1⟧ ⟦2⟧ ⟦3⟧.") == "An anna@example.org schickte Tom <i>%s</i>."


def test_a_placeholder_without_a_span_stays():
    assert mask("5 apples").restore("⟦1⟧ Äpfel ⟦2⟧") == "5 Äpfel ⟦2⟧"


def test_spans_beyond_the_last_placeholder_stay_in_the_text():
    numbers = " ".join(str(1000 + number) for number in range(MOST_PLACEHOLDERS + 2))
    masked = mask(numbers)
    assert len(masked.spans) == MOST_PLACEHOLDERS and masked.text.endswith("⟦20⟧ 1020 1021")
    assert masked.restore(masked.text) == numbers


def test_spans_that_an_output_lacks_are_named():
    assert lost_spans("Mail 5 or 5 to a@b.org", "Schreibe 5 an a@b.org") == ["5"]
    assert lost_spans("Mail 5 or 5 to a@b.org", "5, 5, a@b.org") == []


def test_a_tokenizer_with_the_symbols_gives_each_one_id():
    texts = ["one two three four five six seven"] * 10
    plain = train_tokenizer(texts, kind="bpe", size=60)
    assert placeholder_ids(plain) == []
    assert placeholder_ids(train_tokenizer(texts, kind="char", size=60)) == []
    with_symbols = train_tokenizer(texts, kind="bpe", size=60, symbols=PLACEHOLDERS)
    ids = placeholder_ids(with_symbols)
    assert len(set(ids)) == MOST_PLACEHOLDERS
    encoded = with_symbols.encode("one ⟦2⟧ ⟦3⟧, two")
    assert [id for id in encoded if id in ids] == ids[1:3]
    assert with_symbols.decode(encoded) == "one ⟦2⟧ ⟦3⟧, two".replace(",", "⁇")


@pytest.mark.slow
def test_hostile_text_takes_linear_time():
    texts = [
        "1." * 50_000,
        "a@" * 50_000,
        "<a " * 33_000,
        "{" * 100_000,
        "%1$" * 33_000,
        "😊\u200d" * 50_000,
        "`a" * 50_000,
    ]
    for text in texts:
        began = time.process_time()
        find_spans(text)
        # A hundred times what it takes; with quadratic time it would be minutes.
        assert time.process_time() - began < 20
