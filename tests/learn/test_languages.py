"""One model of several languages: the symbol in front of the source decides the language of the output."""

import itertools
import random

import pytest

import regard
from regard.errors import ConfigError, DataError, DecodeError
from regard.recipe_files import load_recipe

NUMBERS = ["one", "two", "three", "four", "five", "six"]
# Two languages without a common word.
CAPITALS = [word.upper() for word in NUMBERS]
DOTTED = [f"{word}." for word in NUMBERS]
LANGUAGES = {
    "en": lambda row: [NUMBERS[one] for one in row],
    "xa": lambda row: [CAPITALS[one] for one in row],
    "xb": lambda row: [DOTTED[one] for one in row],
}
PAIRS = [("en", "xa"), ("en", "xb"), ("xa", "en")]


def text_in(language, row):
    return " ".join(LANGUAGES[language](row))


def corpora(rows, folder, part):
    """Write a file for each pair of languages, and return the list of them as in a recipe."""
    for source, target in PAIRS:
        lines = [f"{text_in(source, row)}\t{text_in(target, row)}\n" for row in rows]
        (folder / f"{part}.{source}-{target}.tsv").write_text("".join(lines))
    entries = [f"{{pairs='{part}.{one}-{other}.tsv', languages=['{one}', '{other}']}}" for one, other in PAIRS]
    return dict(zip([f"{one}-{other}" for one, other in PAIRS], entries, strict=True))


ROWS = [row for length in (1, 2, 3) for row in itertools.product(range(6), repeat=length)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model of three pairs of languages, trained in seconds."""
    return train(tmp_path_factory.mktemp("languages"), steps=240)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """The same model, which has learnt nothing."""
    return train(tmp_path_factory.mktemp("languages"), steps=1)


def train(folder, steps):
    rows = random.Random(1).sample(ROWS, len(ROWS))
    own, test = corpora(rows[40:], folder, "train"), corpora(rows[:40], folder, "test")
    overrides = [
        f"data.train=[{', '.join(own.values())}]",
        f"data.valid=[{', '.join(test.values())}]",
        f"data.test={{{', '.join(f'{name}={one}' for name, one in test.items())}}}",
        *(
            f"train.steps={steps}",
            "model.num_layers=1",
            "model.width=48",
            "model.hidden=96",
            "train.tokens=512",
            "train.threads=1",
            "train.validate_every=1000",
            "train.warmup_steps=30",
        ),
    ]
    return regard.train("copy", out=folder / "run", overrides=overrides, data=folder, listen=print).run


@pytest.mark.slow
def test_the_language_that_is_asked_for_decides_the_output(run):
    translator = regard.load(run.path)
    sources = [text_in("en", row) for row in ROWS]
    for target, words in (("xa", CAPITALS), ("xb", DOTTED)):
        outputs = translator.translate(sources, to=target)
        assert all(set(output.split()) <= set(words) for output in outputs)
        right = sum(output == text_in(target, row) for output, row in zip(outputs, ROWS, strict=True))
        assert right > 0.95 * len(ROWS)
    # Each test set is scored in its own language.
    results = {one.name: one.scores for one in regard.evaluate(run.path, data=run.path.parent)}
    assert list(results) == ["en-xa", "en-xb", "xa-en"]
    for scores in results.values():
        assert next(score.value for score in scores if score.name == "exact") >= 95


@pytest.mark.slow
def test_only_test_sets_in_a_language_are_scored_if_it_is_named(run):
    (result,) = regard.evaluate(run.path, data=run.path.parent, to="xb")
    assert result.name == "en-xb"
    with pytest.raises(DataError, match="the recipe names no test set in 'de'"):
        regard.evaluate(run.path, data=run.path.parent, to="de")
    (own,) = regard.evaluate(run.path, pairs=run.path.parent / "test.en-xb.tsv", to="xb")
    assert own.scores == result.scores


@pytest.mark.slow
def test_a_pivot_leads_from_one_language_to_another(run):
    translator = regard.load(run.path)
    sources = [text_in("xa", row) for row in ROWS]
    # There is no text from xa to xb.
    outputs = translator.translate(sources, to="xb", pivot="en")
    assert outputs == translator.translate(translator.translate(sources, to="en"), to="xb")
    assert sum(output == text_in("xb", row) for output, row in zip(outputs, ROWS, strict=True)) > 0.9 * len(ROWS)
    assert translator.into("xb", pivot="en").translate([""]) == [""]


def test_a_translator_of_several_languages_must_be_told_one(untrained):
    translator = regard.load(untrained.path)
    with pytest.raises(
        DecodeError, match="this model translates into xa, xb, en; say into which, as in --to xa or, in"
    ):
        translator.translate(["one"])
    with pytest.raises(DecodeError, match="this model does not translate into 'de'; known: en, xa, xb"):
        translator.into("de")
    with pytest.raises(DecodeError, match="this model translates into xa, xb, en; say into which"):
        regard.look(untrained.path, "one two")


def test_look_shows_the_symbol_of_the_language(untrained):
    trace = regard.look(untrained.path, "one two", to="xb")
    assert trace.source.tokens == ["<2xb>", "one", "two", "</s>"]


@pytest.mark.slow
def test_look_translates_into_the_language(run):
    assert set(regard.look(run.path, "one two", to="xb").target.text.split()) <= set(DOTTED)


def multi(*entries):
    return load_recipe(
        "copy", [f"data.train=[{', '.join(entries)}]", "data.valid={generate='copy/valid'}", "data.test={}"]
    )


def test_tags_follow_from_the_languages_where_there_are_several():
    one = "{generate='copy/train', languages=['en', 'de']}"
    other = "{generate='copy/train', languages=['de', 'de'], tag='<bt>'}"
    recipe = multi(one, other)
    assert not recipe.data.multilingual and recipe.data.tags == ("<bt>",)
    french = "{generate='copy/train', languages=['en', 'pt-BR'], tag='<bt>'}"
    valid = "data.valid={generate='copy/valid', languages=['en', 'de']}"
    data = load_recipe("copy", [f"data.train=[{one}, {french}]", valid, "data.test={}"]).data
    assert data.tags == ("<2de>", "<2pt-BR>", "<bt>")
    assert [data.tags_of(corpus) for corpus in data.corpora] == [("<2de>",), ("<2pt-BR>", "<bt>")]
    assert data.language_pairs == (("en", "de"), ("en", "pt-BR"))


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        (["['en', 'de']", "['en', 'German']"], "languages has 'German'; write the codes of source and target"),
        (["['en', 'de']", None], r"train.1 names no languages, but others do; name them for all corpora"),
        (["['en', 'de']", "['en', 'fr']"], r"valid needs languages, as data.train has several: write, as in train"),
    ],
)
def test_mistakes_with_languages_are_named(languages, message):
    entries = [f"{{generate='copy/train'{f', languages={one}' if one else ''}}}" for one in languages]
    with pytest.raises(ConfigError, match=message):
        multi(*entries)


def test_a_dev_set_in_a_language_that_is_not_learnt_is_refused():
    train = (
        "data.train=[{generate='copy/train', languages=['en', 'de']}, {generate='copy/train', languages=['en', 'fr']}]"
    )
    with pytest.raises(ConfigError, match=r"valid is in 'en', but data.train translates into de, fr"):
        load_recipe("copy", [train, "data.test={}", "data.valid={generate='copy/valid', languages=['de', 'en']}"])
