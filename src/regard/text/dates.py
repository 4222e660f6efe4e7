"""A built-in corpus: dates in many languages and scripts, and their ISO 8601 form.

    samedi 14 novembre 2026   →  2026-11-14
    2026年11月14日             →  2026-11-14
    en_GB 03/04/26            →  2026-04-03

Names, field orders and punctuation come from Babel's locale data (Unicode CLDR), so that nothing is downloaded. Another
version of Babel may spell a few dates differently. Three rules make every source unambiguous:

- *Tags.* A form begins with its locale if only the locale determines the order of the fields: 03/04/26 is in March for
  en_US and in April for en_GB. A form is tagged on all days if a form of another locale differs from it only in the order
  of its fields. "fr 14/11/26" is tagged although there is no month 14. In all locales that write 14.11.26 the day comes
  first, so that form has no tag.
- *Years.* The calendar spans one hundred years, so that two digits name one year: 50 to 99 are 19xx, 00 to 49 are 20xx
  (as in RFC 5280, 4.1.2.5.1). Years are Gregorian in all locales, including Thai and Persian.
- *Splits.* Each day of the calendar belongs to one split, so that a model is tested only on days that are not in training.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import itertools
import re
import unicodedata

from babel import Locale
from babel.dates import DateTimePattern, parse_pattern

from regard.errors import DataError, did_you_mean

LOCALES: tuple[str, ...] = (
    *("en_US", "en_GB", "fr", "de", "es", "it", "pt_BR", "nl", "sv", "da", "nb", "pl", "cs", "fi", "hu", "ro", "tr"),
    *("ru", "uk", "bg", "el", "hy", "ka", "he", "ar", "ar_EG", "fa", "hi", "bn", "ta", "th"),
    *("ja", "zh", "ko", "vi", "id", "sw"),
)
# "hr" is left out: its listopad is October, but November in pl and cs.

_CLDR_NAMES = {
    "short": "short",  # 14/11/26
    "numeric": "yMd",  # 14/11/2026
    "medium": "medium",  # 14 nov. 2026
    "long": "long",  # 14 novembre 2026
    "full": "full",  # samedi 14 novembre 2026
    "weekday": "yMMMEd",  # sam. 14 nov. 2026
    "plain": "long",  # november 14 2026: the long form without capitals and commas
}
FORMS: tuple[str, ...] = tuple(_CLDR_NAMES)

# Babel formats dates with Latin digits only; these locales use their own.
_OWN_DIGITS = {
    locale: str.maketrans("0123456789", digits)
    for locale, digits in {"ar_EG": "٠١٢٣٤٥٦٧٨٩", "fa": "۰۱۲۳۴۵۶۷۸۹", "bn": "০১২৩৪৫৬৭৮৯"}.items()
}

FIRST_DAY = datetime.date(1950, 1, 1)
LAST_DAY = datetime.date(2049, 12, 31)

SIZES = {"train": 40_000, "valid": 500, "test": 2_000}
_VALID_PERCENT = 2
_TEST_PERCENT = 8
_SALT = "attention"

# Literals, so that the demo prints the same lines everywhere. None of these days is in the training split.
EXAMPLES: tuple[str, ...] = (
    "samedi 14 novembre 2026",
    "Donnerstag, 9. November 1989",
    "2017年12月6日水曜日",
    "29 февраля 2016 г.",
    "٢٥ ديسمبر ٢٠٢٤",
    "3 अप्रैल 1973",
    "2023년 1월 1일 일요일",
    "en_US 10/11/2025",  # in October
    "en_GB 10/11/2025",  # in November
)

# Left-to-right and right-to-left marks, embeddings and isolates, which are not on keyboards.
_INVISIBLE = dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
_COMMAS = dict.fromkeys(map(ord, ",،"))


def write_date(date: datetime.date, *, locale: str, form: str) -> str:
    """Return the date as it is written in a locale, with a tag if only the locale determines the order of the fields."""
    if locale not in LOCALES:
        raise DataError(f"there is no locale {locale!r} for dates; {did_you_mean(locale, LOCALES)}")
    if form not in FORMS:
        raise DataError(f"there is no form {form!r} of dates; {did_you_mean(form, FORMS)}")
    if not FIRST_DAY <= date <= LAST_DAY:
        raise DataError(f"{date} is outside {FIRST_DAY} to {LAST_DAY}, the range in which two digits name one year")
    text = unicodedata.normalize("NFC", _pattern(locale, form).apply(date, _locale(locale)))
    # split() also splits at no-break and narrow spaces.
    text = " ".join(text.translate(_INVISIBLE).split())
    if form == "plain":
        text = text.lower().translate(_COMMAS)
    text = text.translate(_OWN_DIGITS.get(locale, {}))
    return f"{locale} {text}" if needs_tag(locale, form) else text


@functools.cache
def needs_tag(locale: str, form: str) -> bool:
    """Whether a form of another locale looks the same but has another order of fields."""
    look, order = _look_and_order(locale, form)
    styles = itertools.product(LOCALES, FORMS)
    return any(
        look == other_look and order != other for other_look, other in itertools.starmap(_look_and_order, styles)
    )


@functools.cache
def _look_and_order(locale: str, form: str) -> tuple[str, str]:
    """Return a form with # for each number of one or two digits, and the order of day, month and year."""
    pattern = _pattern(locale, form).pattern.translate(_INVISIBLE)
    # Letters in quoted words are not fields.
    fields = re.sub(r"'[^']*'", lambda quoted: re.sub("[yMd]", "", quoted[0]), pattern)
    order = re.sub(r"(.)\1*", r"\1", re.sub(r"[^yMd]", "", fields))
    # y alone is a year of four digits, which cannot be confused with other fields.
    look = re.sub(r"(?<![yMd])(yy|MM?|dd?)(?![yMd])", "#", fields)
    digits = locale if locale in _OWN_DIGITS else "Latin"
    return f"{digits} {''.join(look.split())}", order


def split_of(date: datetime.date) -> str:
    """Return the split that a day belongs to, the same on every machine."""
    percent = int.from_bytes(_digest(date), "big") % 100
    if percent < _TEST_PERCENT:
        return "test"
    return "valid" if percent < _TEST_PERCENT + _VALID_PERCENT else "train"


def generate(split: str) -> list[tuple[str, str]]:
    """Return pairs of (written date, ISO date) for "train", "valid" or "test", with all locales and forms equally often."""
    calendar = map(datetime.date.fromordinal, range(FIRST_DAY.toordinal(), LAST_DAY.toordinal() + 1))
    # Sorting by hash is a shuffle without a random generator.
    days = sorted((day for day in calendar if split_of(day) == split), key=_digest)
    styles = itertools.product(FORMS, LOCALES)
    # Both cycles repeat until the split is full. They differ in length, so that a day comes with another style each time.
    drawn = itertools.islice(zip(itertools.cycle(days), itertools.cycle(styles), strict=False), SIZES[split])
    return [(write_date(day, locale=locale, form=form), day.isoformat()) for day, (form, locale) in drawn]


def _digest(date: datetime.date) -> bytes:
    return hashlib.blake2b(f"{_SALT} {date.isoformat()}".encode(), digest_size=8).digest()


@functools.cache
def _locale(name: str) -> Locale:
    return Locale.parse(name)


@functools.cache
def _pattern(locale: str, form: str) -> DateTimePattern:
    """Return the CLDR pattern of a form in a locale, such as "EEEE d MMMM y"."""
    data, name = _locale(locale), _CLDR_NAMES[form]
    pattern = data.date_formats[name] if name in data.date_formats else data.datetime_skeletons[name]
    if form == "short":
        # Some short forms have a year of four digits. It is shortened to two, as people do, unless it comes first.
        pattern = parse_pattern(re.sub(r"(?<=[^y])y(?!y)", "yy", pattern.pattern))
    assert isinstance(pattern, DateTimePattern), (locale, form, pattern)
    return pattern
