"""A corpus with every kind of mess: training skips it and accounts for every line, or refuses it by file and line."""

import json
from pathlib import Path

import pytest

import regard
from regard.config import Bitext, DataConfig
from regard.errors import DataError
from regard.recipe_files import load_recipe
from regard.run.folder import RunFolder
from regard.text.bitext import load_bitext, new_report
from regard.text.corpus import Pair, read_pairs
from regard.text.text_report import TextReport
from regard.training.events import Noted

GOOD = [(f"one {n} two", f"eins {n} zwei") for n in range(40)]
RECIPE = """
[data]
on_error = "skip"
train = { pairs = ["a.tsv", "b.csv", "c.jsonl", "d.tmx", "e.po"], columns = ["source", "target"] }
valid = { source = "dev.en", target = "dev.de" }
[tokenizer]
kind = "char"
[model]
kind = "transformer"
width = 16
num_layers = 1
num_heads = 2
hidden = 16
[train]
steps = 2
tokens = 512
threads = 1
device = "cpu"
"""

# Lines of a TSV file that are left out, and why.
BAD_TSV = [
    (b"\tleer", "empty source"),
    (b"empty\t", "empty target"),
    (b"blank\t \xe3\x80\x80", "empty target"),
    (b"one\teins\t0.9", "3 columns instead of 2"),
    (b"no tab", "1 column instead of 2"),
    (b"", "1 column instead of 2"),
    ("fünf\tfive".encode("latin-1"), "not UTF-8"),
    (b"nul\0l\tnull", "NUL byte"),
    (b"long\t" + b"x" * 100_001, "more than 100,000 characters"),
]
# Lines that are mended or kept, and what is read.
MENDED_TSV = [
    (b"windows\tFenster\r", Pair("windows", "Fenster"), "Windows line endings"),
    ("line\u2028break\tx".encode(), Pair("line break", "x"), "texts with U+2028 or U+2029"),
    ("paragraph\u2029\tx".encode(), Pair("paragraph", "x"), "texts with U+2028 or U+2029"),
    (b"bell\x07\x1b[1m\tx", Pair("bell  [1m", "x"), "texts with control characters"),
    (b"old mac\rline\tx", Pair("old mac line", "x"), "texts with control characters"),
    (b"AT&amp;T\t&#65;", Pair("AT&amp;T", "&#65;"), "texts with HTML entities, kept as they are"),
]
BAD_JSON = [
    (b'{"source": "x", "target": ', "no pair in JSON"),
    (b'{"source": "x"}', "no pair in JSON"),
    (b'{"source": ["x"], "target": "y"}', "no pair in JSON"),
    (b'{"source": "x", "target": "\\ud800"}', "no pair in JSON"),
    (b'{"source": "x", "target": "y", "z": ' + b"[" * 50_000, "no pair in JSON"),
    (b'{"source": "a\\u0000b", "target": "y"}', "NUL byte"),
    (b'{"source": null, "target": "y"}', "empty source"),
]
BAD_CSV = [
    (b'"never closed,x', "malformed CSV"),
    (b"a,b,c", "3 columns instead of 2"),
    (b"a", "1 column instead of 2"),
    (b"caf\xe9,x", "not UTF-8"),
]
UNIT = '<tu><tuv xml:lang="{}"><seg>{}</seg></tuv><tuv xml:lang="{}"><seg>{}</seg></tuv></tu>\n'
BAD_TMX = [
    (UNIT.format("source", "x", "fr", "y").encode(), "no text in 'target'"),
    (UNIT.format("source", "x", "target", " ").encode(), "empty target"),
    (UNIT.format("source", "caf\xe9", "target", "y").encode("latin-1"), "not UTF-8"),
    (UNIT.format("source", "x&undefined;", "target", "y").encode(), "undefined entity"),
]
BAD_PO = [
    (b'#, fuzzy\nmsgid "x"\nmsgstr "y"\n\n', 2, "fuzzy"),
    (b'msgid "x"\nmsgstr ""\n\n', 1, "not translated"),
    (b'msgid "x\nmsgstr "y"\n\n', 1, "malformed PO"),
    (b'msgid "x"\n\n', 1, "no msgstr"),
    (b'msgid "caf\xe9"\nmsgstr "y"\n\n', 1, "not UTF-8"),
]
MISALIGNED = 3  # lines that dev.en has more than dev.de


@pytest.fixture
def messy(tmp_path):
    """Write the corpus. Return the folder, and file, line and reason of each place that gives no pair."""
    left_out = []

    def lines(name, head, good, bad, tail=b""):
        """Write a file in which bad lines come after good ones."""
        count = head.count(b"\n") + len(good)
        left_out.extend(
            (str(tmp_path / name), count + number, reason) for number, (_, reason) in enumerate(bad, start=1)
        )
        content = [head, *good, *(line if line.endswith(b"\n") else line + b"\n" for line, _ in bad), tail]
        (tmp_path / name).write_bytes(b"".join(content))

    tsv = [f"{one}\t{other}\n".encode() for one, other in GOOD] + [line + b"\n" for line, _, _ in MENDED_TSV]
    lines("a.tsv", b"\xef\xbb\xbfsource\ttarget\n", tsv, BAD_TSV)
    lines("b.csv", b"source,target\n", [b'"one, two",eins\n'] * 7, BAD_CSV, b'"a\nb",c\n')
    rows = [json.dumps({"translation": {"source": one, "target": other}}).encode() + b"\n" for one, other in GOOD]
    lines("c.jsonl", b"", rows, BAD_JSON)
    tmx = b'<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx><header srclang="source"/><body>\n'
    lines("d.tmx", tmx, [UNIT.format("source", "one", "target", "eins").encode()] * 5, BAD_TMX, b"</body></tmx>")
    po, count = b'msgid ""\nmsgstr ""\n"Language: target\\n"\n\n' + b'msgid "one"\nmsgstr "eins"\n\n', 7
    for entry, line, reason in BAD_PO:
        left_out.append((str(tmp_path / "e.po"), count + line, reason))
        po, count = po + entry, count + entry.count(b"\n")
    (tmp_path / "e.po").write_bytes(po)
    (tmp_path / "dev.en").write_bytes(b"".join(f"{one}\r\n".encode() for one, _ in GOOD))
    (tmp_path / "dev.de").write_bytes(b"".join(f"{other}\n".encode() for _, other in GOOD[:-MISALIGNED]))
    for number in range(len(GOOD) - MISALIGNED, len(GOOD)):
        left_out.append((str(tmp_path / "dev.en"), number + 1, "no counterpart"))
    (tmp_path / "my.toml").write_text(RECIPE)
    return tmp_path, left_out


def listed(content):
    """The file, line and reason of each line of a list."""
    head, *rows = content.decode().splitlines()
    assert head == "file\tline\treason\ttext"
    columns = [row.split("\t") for row in rows]
    assert all(len(row) == 4 and len(row[3]) <= 400 for row in columns)
    return [(file, int(line), reason) for file, line, reason, _ in columns]


def test_a_messy_corpus_trains_and_every_line_that_is_left_out_is_accounted_for(messy):
    folder, expected = messy
    notes = []
    run = regard.train(
        str(folder / "my.toml"),
        out=folder / "run",
        data=folder,
        listen=lambda event: notes.append(event.text) if isinstance(event, Noted) else None,
    ).run
    assert listed((folder / "run" / "left-out.tsv").read_bytes()) == expected
    kinds = {reason for _, _, reason in expected}
    corpus = json.loads((folder / "run" / "corpus.json").read_text())
    mended = {"texts with U+2028 or U+2029": 2, "texts with control characters": 2, "texts with line breaks": 1}
    mended |= {
        "texts with HTML entities, kept as they are": 2,
        "byte order marks": 1,
        "Windows line endings": 1 + len(GOOD),
    }
    assert corpus["mended"] == mended and len(kinds) + len(mended) >= 15
    assert corpus["left_out"] == {kind: sum(reason == kind for _, _, reason in expected) for kind in kinds}
    assert corpus["train"]["pairs"] == 2 * len(GOOD) + len(MENDED_TSV) + 7 + 1 + 5 + 1
    assert corpus["valid"]["pairs"] == len(GOOD) - MISALIGNED
    # In what is printed, in the log, and in the card.
    count = f"{len(expected)} lines of the text left out: no pair in JSON (5), "
    for texts in (notes, [event.get("text", "") for event in run.read_log()]):
        [sentence] = [text for text in texts if "left out" in text]
        assert sentence.startswith(count) and sentence.endswith(f"{folder / 'run' / 'left-out.tsv'} lists them")
        assert sum("Windows line endings (41)" in text for text in texts) == 1
    card = regard.card(run.path, evaluated=False).read_text()
    assert (
        "| left out of the text | no pair in JSON (5), " in card
        and "| noted in the text | Windows line endings (41), " in card
    )
    assert not run.problems()


def test_a_run_with_text_left_out_resumes(messy):
    folder, _ = messy
    run = regard.train(str(folder / "my.toml"), out=folder / "run", data=folder, listen=lambda event: None).run
    again = regard.train(
        *[str(folder / "my.toml")],
        out=folder / "run",
        data=folder,
        overrides=["train.steps=3"],
        accept=["train.steps"],
        listen=lambda event: None,
    )
    assert again.trained and RunFolder(run.path).finished


def test_the_same_corpus_is_refused_by_default_with_file_and_line(messy):
    folder, expected = messy
    recipe = load_recipe(str(folder / "my.toml"), ["data.on_error=refuse"])
    with pytest.raises(DataError) as caught:
        regard.train(recipe, out=folder / "run", data=folder, listen=lambda event: None)
    file, line, _ = expected[0]
    assert str(caught.value) == (
        f"line {line} of {file} has an empty source side; remove that pair or fill it in; "
        "data.on_error=skip leaves such text out"
    )
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("name", "head", "bad"),
    [
        *(("a.tsv", b"one\teins\n", line) for line, _ in BAD_TSV),
        *(("a.jsonl", b'{"source": "a", "target": "b"}\n', line) for line, _ in BAD_JSON),
        *(("a.csv", b"source,target\n", line) for line, _ in BAD_CSV),
    ],
)
def test_every_kind_of_mess_is_refused_with_its_file_and_line(tmp_path, name, head, bad):
    path = tmp_path / name
    path.write_bytes(head + bad + b"\n")
    with pytest.raises(DataError) as caught:
        read_pairs(path)
    assert str(caught.value).startswith(f"line 2 of {path} ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(("raw", "pair", "kind"), MENDED_TSV)
def test_small_damage_is_mended_and_counted_whether_problems_are_skipped_or_not(tmp_path, raw, pair, kind):
    (tmp_path / "a.tsv").write_bytes(raw + b"\n")
    for skip in (False, True):
        report = TextReport(skip=skip)
        assert read_pairs(tmp_path / "a.tsv", report=report) == [pair]
        assert set(report.mended) == {kind}


def test_a_corpus_of_which_nothing_is_left_is_refused(tmp_path):
    (tmp_path / "utf16.tsv").write_bytes("one\teins\n".encode("utf-16"))
    with pytest.raises(DataError) as caught:
        read_pairs(tmp_path / "utf16.tsv", report=TextReport(skip=True))
    assert str(caught.value) == f"{tmp_path}/utf16.tsv gave no pair: 2 lines of the text left out: NUL byte (2)"


@pytest.mark.parametrize("shorter", ["en", "de"])
def test_lines_without_a_counterpart_are_left_out_of_the_longer_file(tmp_path, shorter):
    for name in ("en", "de"):
        (tmp_path / name).write_bytes(b"one\ntwo\n" if name == shorter else b"one\ntwo\nthree\nfour\n")
    report = TextReport(skip=True)
    assert len(read_pairs(tmp_path / "en", tmp_path / "de", report=report)) == 2
    longer = str(tmp_path / {"en": "de", "de": "en"}[shorter])
    assert listed(b"".join(report.blocks())) == [(longer, 3, "no counterpart"), (longer, 4, "no counterpart")]
    assert (
        report.sentences()[1]
        == "parallel files differ in length, so pairs may be wrong from some line on; align them again"
    )


def test_a_bad_line_drops_the_pair_and_keeps_the_others_aligned(tmp_path):
    (tmp_path / "en").write_bytes(b"one\n\xff\nthree\n\nfive\n")
    (tmp_path / "de").write_bytes(b"eins\nzwei\n\nvier\nfunf\n")
    report = TextReport(skip=True)
    assert read_pairs(tmp_path / "en", tmp_path / "de", report=report) == [Pair("one", "eins"), Pair("five", "funf")]
    assert listed(b"".join(report.blocks())) == [
        (str(tmp_path / "en"), 2, "not UTF-8"),
        (str(tmp_path / "de"), 3, "empty target"),
        (str(tmp_path / "en"), 4, "empty source"),
    ]


def test_tags_and_texts_without_a_target_are_skipped_too(tmp_path):
    (tmp_path / "words").write_bytes(b"one two\nthree\n\xff\nfive\n")
    (tmp_path / "labels").write_bytes(b"A B\nC\nD\nE\n")
    (tmp_path / "tags").write_bytes(b"X Y\nX Y\nX\nZ\n")
    tagged = DataConfig(train=Bitext(source="words", target="labels", tags="tags"), on_error="skip")
    report = new_report(tagged)
    assert load_bitext(tagged.train, folders=[tmp_path], data=tagged, report=report) == [
        Pair("one|X two|Y", "A B"),
        Pair("five|Z", "E"),
    ]
    assert listed(b"".join(report.blocks())) == [
        (str(tmp_path / "tags"), 2, "wrong number of tags"),
        (str(tmp_path / "words"), 3, "not UTF-8"),
    ]
    texts, report = Bitext(text=("words", "labels")), TextReport(skip=True)
    found = load_bitext(texts, folders=[tmp_path], report=report)
    assert [pair.source for pair in found] == ["one two", "three", "five", "A B", "C", "D", "E"] and report.total == 1


def test_a_long_list_of_what_was_left_out_is_complete(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.text.text_report.IN_MEMORY", 1000)
    (tmp_path / "a.tsv").write_text("a\tb\n" + "\t\n" * 500)
    report = TextReport(skip=True)
    read_pairs(Path(tmp_path / "a.tsv"), report=report)
    assert listed(b"".join(report.blocks())) == [
        (str(tmp_path / "a.tsv"), line, "empty source") for line in range(2, 502)
    ]
