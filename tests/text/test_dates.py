"""The corpus of dates: correct forms, unambiguous sources, and splits by day."""

import datetime
import functools
import itertools
import unicodedata

import pytest
from babel import Locale

from regard.errors import DataError
from regard.text import dates
from regard.text.dates import EXAMPLES, FORMS, LOCALES, generate, needs_tag, split_of, write_date

SATURDAY = datetime.date(2026, 11, 14)
pairs_of = functools.cache(generate)


@pytest.mark.parametrize(
    ("locale", "form", "text"),
    [
        ("fr", "full", "samedi 14 novembre 2026"),
        ("fr", "medium", "14 nov. 2026"),
        ("en_US", "full", "Saturday, November 14, 2026"),
        ("en_US", "plain", "november 14 2026"),
        ("en_GB", "long", "14 November 2026"),
        ("ja", "long", "2026年11月14日"),
        ("de", "short", "14.11.26"),
        ("bg", "short", "14.11.26 г."),
        ("cs", "weekday", "so 14. 11. 2026"),
        ("ar_EG", "numeric", "١٤/١١/٢٠٢٦"),
        ("th", "medium", "14 พ.ย. 2026"),  # Gregorian; 2569 in the Thai calendar
    ],
)
def test_a_date_is_written_as_in_its_locale(locale: str, form: str, text: str) -> None:
    assert write_date(SATURDAY, locale=locale, form=form) == text


def test_a_tag_distinguishes_the_third_of_april_from_the_fourth_of_march() -> None:
    april, march = datetime.date(2026, 4, 3), datetime.date(2026, 3, 4)
    assert write_date(april, locale="en_GB", form="short") == "en_GB 03/04/26"
    assert write_date(april, locale="es", form="short") == "es 3/4/26"
    assert write_date(march, locale="en_US", form="short") == "en_US 3/4/26"


def test_slashes_are_tagged_because_of_the_american_order_and_dots_are_not() -> None:
    # Of the locales with slashes only en_US puts the month first; everyone with dots puts the day first.
    for locale, text in {"fr": "fr 14/11/26", "ar": "ar 14/11/26", "en_US": "en_US 11/14/26", "de": "14.11.26"}.items():
        assert write_date(SATURDAY, locale=locale, form="short") == text
    # No other locale has slashes between these digits.
    assert write_date(SATURDAY, locale="ar_EG", form="short") == "١٤/١١/٢٦"
    assert write_date(SATURDAY, locale="ko", form="short") == "26. 11. 14."
    assert write_date(SATURDAY, locale="sv", form="short") == "2026-11-14"


def test_only_tagged_forms_would_be_ambiguous_without_their_tags() -> None:
    # 1, 2, 3 and 12 can each be a day, a month or a short year; 13 cannot be a month.
    some = itertools.product((2001, 2002, 2003, 2012), (1, 2, 3, 12), (1, 2, 3, 12, 13))
    meanings: dict[str, set[datetime.date]] = {}
    untagged = set()
    for day in (datetime.date(*numbers) for numbers in some):
        for locale, form in itertools.product(LOCALES, FORMS):
            source = write_date(day, locale=locale, form=form)
            if needs_tag(locale, form):
                assert source.startswith(f"{locale} ")
                source = source.split(" ", 1)[1]
            else:
                untagged.add(source)
            meanings.setdefault(source, set()).add(day)
    colliding = {source for source, days in meanings.items() if len(days) > 1}
    assert not colliding & untagged
    assert "3/2/12" in colliding  # so tags are necessary


def test_two_digits_name_one_year_of_the_calendar() -> None:
    years = range(dates.FIRST_DAY.year, dates.LAST_DAY.year + 1)
    assert len({year % 100 for year in years}) == len(years) == 100


@pytest.mark.parametrize("locale", LOCALES)
def test_the_full_form_names_the_correct_weekday(locale: str) -> None:
    week = [datetime.date(2026, 11, 9) + datetime.timedelta(n) for n in range(7)]  # a Monday and the six days after it
    names = Locale.parse(locale).days
    for day in week:
        text = write_date(day, locale=locale, form="full")
        # The Finnish weekday has a case ending in a sentence (maanantaina) but not next to a date (maanantai).
        assert any(names[context]["wide"][day.weekday()] in text for context in ("format", "stand-alone"))


def test_a_source_means_one_date_within_and_across_splits() -> None:
    meanings: dict[str, str] = {}
    for split in dates.SIZES:
        for source, target in pairs_of(split):
            assert meanings.setdefault(source, target) == target


@pytest.mark.parametrize("split", dates.SIZES)
def test_targets_are_the_days_of_their_split(split: str) -> None:
    pairs = pairs_of(split)
    assert len(pairs) == dates.SIZES[split]
    assert all(split_of(datetime.date.fromisoformat(target)) == split for _, target in set(pairs))


def test_no_day_is_in_two_splits() -> None:
    train, valid, test = ({target for _, target in pairs_of(split)} for split in ("train", "valid", "test"))
    assert not train & valid
    assert not train & test
    assert not valid & test


@pytest.mark.parametrize("split", dates.SIZES)
def test_every_split_has_all_locales_in_all_forms(split: str) -> None:
    pairs = pairs_of(split)
    styles = list(itertools.product(FORMS, LOCALES))
    assert len(styles) <= len(pairs)
    for (source, target), (form, locale) in zip(pairs, styles, strict=False):
        assert source == write_date(datetime.date.fromisoformat(target), locale=locale, form=form)


@pytest.mark.parametrize("split", dates.SIZES)
def test_thirteen_scripts_occur_in_every_split(split: str) -> None:
    letters = {c for source, _ in pairs_of(split) for c in source if c.isalpha()}
    scripts = {unicodedata.name(c).split()[0] for c in letters}
    assert scripts >= {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "GEORGIAN", "HEBREW", "ARABIC"}
    assert scripts >= {"DEVANAGARI", "BENGALI", "TAMIL", "THAI", "CJK", "HANGUL"}


def test_the_locales_have_at_least_thirty_languages() -> None:
    assert len(set(LOCALES)) == len(LOCALES)
    assert len({locale.split("_")[0] for locale in LOCALES}) >= 30


def test_sources_contain_only_characters_that_people_type() -> None:
    for source, _ in pairs_of("train"):
        assert unicodedata.is_normalized("NFC", source)
        assert source == " ".join(source.split(" "))
        assert all(c == " " or not c.isspace() for c in source)
        assert not set(source) & set("\u061c\u200e\u200f\u202a\u202b\u202c\u2066\u2067\u2068\u2069")


@pytest.mark.parametrize("split", dates.SIZES)
def test_two_calls_give_the_same_pairs(split: str) -> None:
    assert generate(split) == pairs_of(split)


def test_the_split_of_a_day_does_not_change_between_versions() -> None:
    # blake2b("attention " + ISO date), 8 bytes, modulo 100: below 8 is test, then below 10 valid, else train.
    assert split_of(datetime.date(2026, 11, 14)) == "test"
    assert split_of(datetime.date(1989, 11, 9)) == "test"


def test_the_examples_are_days_outside_training() -> None:
    targets = ["2026-11-14", "1989-11-09", "2017-12-06", "2016-02-29", "2024-12-25", "1973-04-03", "2023-01-01"]
    targets += ["2025-10-11", "2025-11-10"]
    for source, target in zip(EXAMPLES, targets, strict=True):
        day = datetime.date.fromisoformat(target)
        assert source in {write_date(day, locale=locale, form=form) for locale in LOCALES for form in FORMS}
        assert split_of(day) == "test"


def test_unknown_names_answer_with_the_nearest_known_one() -> None:
    with pytest.raises(DataError, match="did you mean 'en_GB'"):
        write_date(SATURDAY, locale="en_BG", form="long")
    with pytest.raises(DataError, match="did you mean 'numeric'"):
        write_date(SATURDAY, locale="fr", form="numerical")


def test_a_date_whose_two_digits_could_mean_another_is_refused() -> None:
    with pytest.raises(DataError, match="1949-12-31 is outside 1950-01-01 to 2049-12-31"):
        write_date(datetime.date(1949, 12, 31), locale="de", form="short")
