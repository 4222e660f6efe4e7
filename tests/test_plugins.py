"""Registries of named entries, and plug-ins: what they add, and what a broken one does."""

import subprocess
import sys
import textwrap

import pytest

from regard.errors import CheckpointError, ConfigError
from regard.registry import Registry


@pytest.fixture
def colours():
    registry = Registry("colour")
    registry.register("red", 1)
    registry.register("green", 2)
    return registry


def test_names_are_listed_in_the_order_of_registration(colours):
    assert colours.names() == ("red", "green")
    assert colours.get("green", where="paint") == 2


def test_an_unknown_name_answers_with_its_nearest_neighbour(colours):
    with pytest.raises(ConfigError, match=r"^paint\.kind is 'gren'; did you mean 'green'\?$"):
        colours.get("gren", where="paint.kind")
    with pytest.raises(CheckpointError, match=r"^the kind in x\.json is 7; known: green, red$"):
        colours.get(7, where="the kind in x.json", error=CheckpointError)


def test_a_name_is_registered_once_unless_it_is_to_be_replaced(colours):
    with pytest.raises(ConfigError, match="a colour called 'red' is registered already"):
        colours.register("red", 3)
    colours.register("red", 3, replace=True)
    assert colours.get("red", where="paint") == 3


# Plug-ins. Each test writes a distribution as pip leaves it in site-packages, and asks in a process of its own.


def install(folder, module, entry_point, code):
    """Write a distribution `regard-MODULE` with one module and one entry point."""
    (folder / f"{module}.py").write_text(textwrap.dedent(code))
    info = folder / f"regard_{module}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: regard-{module}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[regard.plugins]\n{module} = {entry_point}\n")


def answers(folder, code):
    """Run code with the folder on the path; return what it prints, and what it prints to stderr."""
    path = f"import sys; sys.path.insert(0, {str(folder)!r})\n"
    ran = subprocess.run([sys.executable, "-c", path + code], capture_output=True, text=True, check=True)
    return ran.stdout.split(), ran.stderr


REGISTERS = """
    print("loaded")
    def register():
        from regard.text.tokenizer import TokenizerKind, TOKENIZERS, register_tokenizer
        print(len(TOKENIZERS.names()))
        register_tokenizer("reversed", TokenizerKind(None, None))
"""
ASK = "from regard.text.tokenizer import TOKENIZERS\n"


def test_a_plug_in_is_loaded_once_when_a_name_is_missing(tmp_path):
    install(tmp_path, "good", "good:register", REGISTERS)
    ask = "print(TOKENIZERS.get('reversed', where='kind') is not None, *TOKENIZERS.names())"
    found, errors = answers(tmp_path, ASK + ask)
    assert found == ["loaded", "4", "True", "bpe", "unigram", "char", "word", "reversed"]
    assert errors == ""


def test_importing_and_asking_for_what_is_built_in_load_no_plug_in(tmp_path):
    install(tmp_path, "good", "good:register", REGISTERS)
    ask = "import regard, regard.text.tokenizer\nTOKENIZERS.get('bpe', where='kind')"
    assert answers(tmp_path, ASK + ask) == ([], "")


@pytest.mark.parametrize(
    ("entry_point", "code", "reason"),
    [
        ("bad:register", "import absent_package", "ModuleNotFoundError: No module named 'absent_package'"),
        ("bad:register", "def register(): 1 / 0", "ZeroDivisionError: division by zero"),
        ("bad:register", "raise SystemExit(3)", "SystemExit: 3"),
        ("bad:enrol", "def register(): pass", "AttributeError: module 'bad' has no attribute 'enrol'"),
        ("bad", "", "'bad' is not a function; name one, as in 'my_package:register'"),
        (
            "bad:register",
            "from regard.text.tokenizer import register_tokenizer\ndef register(): register_tokenizer('bpe', None)",
            "a tokenizer called 'bpe' is registered already; choose another name",
        ),
    ],
)
def test_a_plug_in_that_fails_is_reported_in_one_sentence_and_breaks_nothing_else(tmp_path, entry_point, code, reason):
    install(tmp_path, "bad", entry_point, code)
    install(tmp_path, "good", "good:register", REGISTERS)
    found, errors = answers(tmp_path, ASK + "print(*TOKENIZERS.names(), *TOKENIZERS.names())")
    assert found[2:] == ["bpe", "unigram", "char", "word", "reversed"] * 2
    assert errors == f"the plug-in 'bad' of regard-bad 1.5 could not be loaded: {reason}\n"


def test_a_missing_name_says_which_plug_in_could_not_be_loaded(tmp_path):
    install(tmp_path, "bad", "bad:register", "import absent_package")
    ask = """
from regard.errors import ConfigError
try:
    TOKENIZERS.get('mine', where='tokenizer.kind')
except ConfigError as error:
    print(error)
"""
    found, _ = answers(tmp_path, ASK + ask)
    sentence = " ".join(found)
    assert sentence.startswith("tokenizer.kind is 'mine'; known: bpe, char, unigram, word (the plug-in 'bad' of ")
