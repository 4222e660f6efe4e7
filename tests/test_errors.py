"""The errors we explain: one tree, and a hint at what was meant."""

import ast
import itertools
import json
import re
import sys
from pathlib import Path

import pytest

import regard
from regard import errors
from regard.errors import MissingExtra, RegardError, did_you_mean, install_command, require, require_installed
from regard.messages import counted

ROOT = Path(__file__).resolve().parent.parent


def kinds():
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]


def test_every_error_of_ours_can_be_caught_as_one_and_is_in_the_tree_of_the_docstring():
    assert len(kinds()) == 11
    for kind in kinds():
        assert issubclass(kind, RegardError)
        assert kind.__name__ in errors.__doc__


def test_none_of_them_hides_behind_an_error_of_pythons():
    assert not any(issubclass(kind, (ValueError, OSError, RuntimeError, LookupError)) for kind in kinds())


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("warmup", "did you mean 'warmup_steps'?"),
        ("stepps", "did you mean 'steps'?"),
        ("zzz", "known: seed, steps, warmup_steps"),
        ("", "known: seed, steps, warmup_steps"),
    ],
)
def test_a_near_name_is_offered_and_otherwise_all_are_listed_in_order(name, answer):
    assert did_you_mean(name, ["warmup_steps", "steps", "seed"]) == answer


def test_names_may_come_from_anything_that_can_be_walked_once():
    assert did_you_mean("bas", iter(["base", "xyz"])) == "did you mean 'base'?"


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("heads", ["hidden", "num_heads"], "num_heads"),  # a word of it
        ("hidden_size", ["hidden", "width"], "hidden"),  # a word more
        ("optim", ["optimizer", "tokens"], "optimizer"),  # its beginning
        ("augmentation", ["augment", "source"], "augment"),
        ("RNN", ["nat", "rnn"], "rnn"),  # another case
        ("multi30k-de-en", ["multi30k-en-de", "multi30k-en-de-rnn"], "multi30k-en-de"),  # another order
        ("train.stepz", ["train.lr", "train.steps"], "train.steps"),
    ],
)
def test_a_near_name_shares_words_or_most_letters(name, known, meant):
    assert did_you_mean(name, known) == f"did you mean {meant!r}?"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("epochs", ["eps", "steps"]),
        ("gpu", ["graph"]),
        ("linear", ["cosine", "noam"]),
        ("lion", ["adam", "muon"]),
        ("depth", ["dropout", "width"]),
        ("fr-en", ["de-en", "en-de"]),
        ("optimizer", ["model", "tokenizer"]),
        ("lstm", ["binary-lstm", "pointer-lstm", "rnn"]),  # words of different things
        ("wordpiece", ["bpe", "unigram", "word"]),
        ("train.seed", ["train.decay", "train.steps"]),  # what is common to all of them says nothing
    ],
)
def test_a_name_that_only_shares_letters_is_not_offered(name, known):
    assert did_you_mean(name, known) == f"known: {', '.join(known)}"


def test_several_names_with_a_word_in_common_come_first():
    known = [*(f"name{number:02}" for number in range(30)), "validate_every", "validate_pairs"]
    first = "known: validate_every, validate_pairs, name00"
    assert did_you_mean("validate", known).startswith(first)


def test_a_long_list_of_known_names_is_shortened():
    known = [f"name{number:02}" for number in range(30)]
    assert did_you_mean("zzz", known) == f"known: {', '.join(known[:24])} and 6 more"


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "pair", "0 pairs"),
        (1, "pair", "1 pair"),
        (2, "pair", "2 pairs"),
        (1234, "target token", "1,234 target tokens"),
        (1, "batch", "1 batch"),
        (3, "batch", "3 batches"),
        (2, "process", "2 processes"),
    ],
)
def test_a_count_has_its_noun_in_the_singular_or_the_plural(number, noun, text):
    assert counted(number, noun) == text


# Counts that cannot be 1 where they are printed: there are always more, or a condition has excluded it.
MANY = {
    ("cli/ablate.py", "words"),
    ("cli/learn.py", "pages"),
    ("cli/study.py", "files"),
    ("comparing/compare.py", "systems"),
    ("exchange/marian.py", "vocabularies"),
    ("exchange/vocabulary.py", "symbols"),
    ("learn/check.py", "tests"),
    ("learn/numbers.py", "elements"),
    ("learn/render.py", "blocks"),
    ("models/bytenet.py", "dilations"),
    ("probing.py", "sentences"),
    ("study/study_file.py", "rows"),
    ("tasks/captioning.py", "characters"),
    ("tasks/questions.py", "sentences"),
    ("text/glossary.py", "forms"),
    ("text/parquet.py", "rows"),
    ("text/reviews.py", "sentences"),
    ("text/tokenizer.py", "ids"),
    ("text/words.py", "different tags"),
}


def test_no_message_prints_a_length_in_front_of_a_plural():
    """It would say "1 pairs"; `counted` does not."""
    root = Path(regard.__file__).parent
    found = set()
    for path in sorted(root.rglob("*.py")):
        for text in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts = text.values if isinstance(text, ast.JoinedStr) else []
            for value, after in itertools.pairwise(parts):
                if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                    noun = re.match(r" ((?:[a-z-]+ )?[a-z]{2,}s)(?![a-z/])(?<! has)", after.value)
                    if noun and "len(" in ast.unparse(value.value):
                        found.add((str(path.relative_to(root)), noun[1]))
    assert found == MANY


def test_a_package_that_is_there_is_imported():
    assert require("json", extra="plots") is json


def test_a_package_that_is_not_there_names_the_extra_that_brings_it():
    with pytest.raises(MissingExtra) as caught:
        require("a_package_nobody_wrote", extra="plots")
    assert str(caught.value) == f"this needs the package 'a_package_nobody_wrote': {install_command('plots')}"
    assert isinstance(caught.value.__cause__, ImportError)
    with pytest.raises(MissingExtra) as without_import:
        require_installed("a_package_nobody_wrote", extra="plots")
    assert str(without_import.value) == str(caught.value)
    require_installed("json", extra="plots")


@pytest.fixture
def active(monkeypatch, tmp_path):
    """An activated environment outside of any checkout: its pip is the one on the path."""
    for name in ("python", "pip"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))


def test_an_extra_of_an_installed_package_is_installed_by_name(active, monkeypatch):
    monkeypatch.setattr(errors, "CHECKOUT", None)
    assert install_command("serve") == "pip install 'regard[serve]'"


def test_an_extra_of_a_checkout_is_installed_from_the_checkout(active, monkeypatch, tmp_path):
    assert errors.CHECKOUT == ROOT
    monkeypatch.chdir(ROOT)
    assert install_command("serve") == "pip install -e '.[serve]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("serve") == f"pip install -e '{ROOT}[serve]'"


def test_an_environment_that_is_not_activated_is_named_in_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(ROOT / ".venv" / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(ROOT)
    assert install_command("serve") == ".venv/bin/python -m pip install -e '.[serve]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("serve") == f"{ROOT}/.venv/bin/python -m pip install -e '{ROOT}[serve]'"


def test_a_package_in_site_packages_is_not_a_checkout(tmp_path):
    package = tmp_path / "lib" / "site-packages" / "regard"
    package.mkdir(parents=True)
    assert errors.find_checkout(package / "errors.py") is None
