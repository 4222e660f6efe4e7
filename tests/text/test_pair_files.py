"""Files of pairs in the formats that people have: each gives the same pairs, plain and compressed."""

from __future__ import annotations

import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

import regard
from regard.config import Bitext
from regard.errors import DataError, MissingExtra
from regard.text.bitext import find_file, load_bitext
from regard.text.corpus import FORMATS, Pair, read_pairs
from regard.text.text_report import TextReport

PAIRS = [Pair("one, two", "eins, zwei"), Pair('say "hello" & go', "sag „hallo“ & geh"), Pair("three", "drei")]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def tmx(pairs: list[Pair], *, head: str = '<?xml version="1.0" encoding="UTF-8"?>\n', source: str = "en-US") -> str:
    def escaped(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;")

    units = "".join(
        f'<tu>\n<tuv xml:lang="en-US"><seg>{escaped(one)}</seg></tuv>\n'
        f'<tuv xml:lang="de-DE"><seg>{escaped(other)}</seg></tuv>\n</tu>\n'
        for one, other in pairs
    )
    head = f'{head}<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header srclang="{source}"/>'
    return f"{head}<body>\n{units}</body></tmx>"


def tbx(pairs: list[Pair]) -> str:
    def section(language: str, text: str) -> str:
        term = text.replace("&", "&amp;").replace("<", "&lt;")
        return f'<langSec xml:lang="{language}"><termSec><term>{term}</term></termSec></langSec>'

    concepts = "".join(
        f"<conceptEntry>{section('en', one)}{section('de', other)}</conceptEntry>\n" for one, other in pairs
    )
    return f'<?xml version="1.0"?>\n<tbx xml:lang="en"><text><body>\n{concepts}</body></text></tbx>'


def po(pairs: list[Pair]) -> str:
    entries = "".join(
        f"msgid {json.dumps(one)}\nmsgstr {json.dumps(other, ensure_ascii=False)}\n\n" for one, other in pairs
    )
    header = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    return f"# a comment\n{header}{entries}"


def csv(pairs: list[Pair], *, header: str = "source,target\n") -> str:
    quoted = [[f'"{text.replace(chr(34), chr(34) * 2)}"' for text in pair] for pair in pairs]
    return header + "".join(f"{one},{other}\r\n" for one, other in quoted)


def parquet(pairs: list[Pair], *, names: tuple[str, str] = ("source", "target"), nested: bool = False) -> bytes:
    arrow, file = pytest.importorskip("pyarrow"), io.BytesIO()
    from pyarrow import parquet as tables

    rows = [dict(zip(names, pair, strict=True)) for pair in pairs]
    table = arrow.Table.from_pylist([{"id": 1, "translation": row} if nested else {"id": 1, **row} for row in rows])
    tables.write_table(table, file)
    return file.getvalue()


CONTENT: dict[str, Callable[[list[Pair]], bytes]] = {
    "tsv": lambda pairs: "".join(f"{one}\t{other}\n" for one, other in pairs).encode(),
    "csv": lambda pairs: csv(pairs).encode(),
    "jsonl": lambda pairs: "".join(json.dumps(pair._asdict()) + "\n" for pair in pairs).encode(),
    "tmx": lambda pairs: tmx(pairs).encode(),
    "tbx": lambda pairs: tbx(pairs).encode(),
    "po": lambda pairs: po(pairs).encode(),
    "parquet": parquet,
}


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_every_format_is_tested() -> None:
    assert CONTENT.keys() == FORMATS.keys()


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("format", [format for format in FORMATS if format != "parquet"])
def test_a_file_of_pairs_is_read_by_its_name_plain_and_compressed(tmp_path: Path, format: str, packed: str) -> None:
    path = write(tmp_path / f"my.{format}{packed}", PACK[packed](CONTENT[format](PAIRS)))
    assert read_pairs(path) == PAIRS
    assert load_bitext(Bitext(pairs=f"my.{format}"), folders=[tmp_path]) == PAIRS


@pytest.mark.parametrize("format", FORMATS)
def test_the_format_may_be_named_where_the_file_name_does_not_show_it(tmp_path: Path, format: str) -> None:
    path = write(tmp_path / "corpus.txt", CONTENT[format](PAIRS))
    assert read_pairs(path, format=format) == PAIRS
    assert load_bitext(Bitext(pairs="corpus.txt", format=format), folders=[tmp_path]) == PAIRS  # type: ignore[arg-type]
    with pytest.raises(DataError, match="is not a file of pairs by its name"):
        read_pairs(path)


@pytest.mark.parametrize("packed", PACK)
def test_parallel_files_are_found_and_read_plain_and_compressed(tmp_path: Path, packed: str) -> None:
    for side, name in enumerate(("a.en", "a.de")):
        write(tmp_path / f"{name}{packed}", PACK[packed]("".join(pair[side] + "\n" for pair in PAIRS).encode()))
    assert load_bitext(Bitext(source="a.en", target="a.de.gz"), folders=[tmp_path]) == PAIRS
    assert find_file("a.en.xz", [tmp_path]) == tmp_path / f"a.en{packed}"


def test_compressed_files_may_have_several_parts(tmp_path: Path) -> None:
    for ending, pack in PACK.items():
        path = write(tmp_path / f"my.tsv{ending}", pack(b"a\tb\n") + pack(b"c\td\n"))
        assert read_pairs(path) == [Pair("a", "b"), Pair("c", "d")]
    path = write(tmp_path / "padded.tsv.xz", lzma.compress(b"a\tb\n") + bytes(8))
    assert read_pairs(path) == [Pair("a", "b")]


@pytest.mark.parametrize("packed", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("format", ["tsv", "tmx"])
def test_a_compressed_file_without_its_end_is_refused(tmp_path: Path, format: str, packed: str) -> None:
    content = PACK[packed](CONTENT[format]([Pair(str(n), str(n * n * 7919 % 1_000_003)) for n in range(5_000)]))
    path = write(tmp_path / f"my.{format}{packed}", content[: len(content) // 2])
    with pytest.raises(DataError, match=rf"my.{format}{packed} is a damaged \w+ file.*copy it again"):
        read_pairs(path)


def test_several_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    for number, pair in enumerate(PAIRS):
        write(tmp_path / f"{number}.en", pair.source + "\n")
        write(tmp_path / f"{number}.de.gz", gzip.compress(f"{pair.target}\n".encode()))
    write(tmp_path / "a.tsv", CONTENT["tsv"](PAIRS[:1]))
    write(tmp_path / "b.tmx", CONTENT["tmx"](PAIRS[1:]))
    sources, targets = tuple(f"{number}.en" for number in range(3)), tuple(f"{number}.de" for number in range(3))
    assert load_bitext(Bitext(source=sources, target=targets), folders=[tmp_path]) == PAIRS
    assert load_bitext(Bitext(pairs=("a.tsv", "b.tmx")), folders=[tmp_path]) == PAIRS
    with pytest.raises(ValueError, match="name equally many"):
        Bitext(source=sources, target=targets[:2])
    with pytest.raises(DataError, match="the source has 2 files, but its target or tags have 1"):
        read_pairs([tmp_path / "0.en", tmp_path / "1.en"], tmp_path / "0.de.gz")
    write(tmp_path / "a.tsv", "x\ny\n")
    with pytest.raises(DataError, match=r"1\.en has 1 line but .*a\.tsv has 2; line N of one"):
        read_pairs([tmp_path / "0.en", tmp_path / "1.en"], [tmp_path / "0.de.gz", tmp_path / "a.tsv"])


# What the sides are called


def test_columns_are_chosen_by_name_in_any_order(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "id\tDE\ten\n1\teins\tone\n")
    assert read_pairs(path, columns=("en", "de")) == [Pair("one", "eins")]
    path = write(tmp_path / "a.csv", 'id;de;en\n1;eins;"one; two"\n')
    assert read_pairs(path, columns=("en", "de")) == [Pair("one; two", "eins")]
    assert load_bitext(Bitext(pairs="a.csv", columns=("de", "en")), folders=[tmp_path]) == [Pair("eins", "one; two")]
    for wrong in ("a.tsv", "a.csv"):
        with pytest.raises(
            DataError, match=r"the first line of .* names no column 'fr'; .*known: de, en, id|known: DE"
        ):
            read_pairs(tmp_path / wrong, columns=("en", "fr"))


def test_columns_are_chosen_by_number_where_the_file_has_no_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "Go.\tGeh.\tCC-BY 2.0\nHi.\tHallo!\tCC-BY 2.0\tmore\n")
    assert read_pairs(path, columns=(2, 1)) == [Pair("Geh.", "Go."), Pair("Hallo!", "Hi.")]
    path = write(tmp_path / "a.csv", 'Go.,"Geh, weg."\n')
    assert read_pairs(path, columns=(1, 2)) == [Pair("Go.", "Geh, weg.")]
    with pytest.raises(DataError, match=r"line 1 of .*a\.csv has 2 columns; it needs 3"):
        read_pairs(path, columns=(1, 3))


@pytest.mark.parametrize("columns", [("a", "a"), ("a", 1), (0, 1), ("", "b"), (1, 20_000)])
def test_columns_that_cannot_be_are_refused(columns: tuple[str | int, str | int]) -> None:
    with pytest.raises(ValueError, match="both by name or both by number"):
        Bitext(pairs="a.tsv", columns=columns)
    with pytest.raises(ValueError, match="columns and format are for a file of pairs"):
        Bitext(source="a", target="b", columns=("en", "de"))


def test_rows_of_hugging_face_have_a_translation_with_languages(tmp_path: Path) -> None:
    rows = [{"id": "7", "translation": {"de": pair.target, "en": pair.source}} for pair in PAIRS]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert read_pairs(path, columns=("en", "de")) == read_pairs(path, languages=("en", "de")) == PAIRS
    with pytest.raises(DataError, match=r"line 1 of .*a\.jsonl has a translation in 'de', 'en'; name the source and"):
        read_pairs(path)
    nested = write(tmp_path / "a.parquet", parquet(PAIRS, names=("en", "de"), nested=True))
    assert read_pairs(nested, columns=("en", "de")) == read_pairs(nested, languages=("en", "de")) == PAIRS
    with pytest.raises(DataError, match=r"has no column 'source'; .*\(it has 'id', 'en', 'de'\)"):
        read_pairs(nested)


def test_keys_of_json_are_chosen_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"article": "long text", "summary": "text", "n": 3}\n')
    assert read_pairs(path, columns=("article", "summary")) == [Pair("long text", "text")]
    path = write(tmp_path / "b.jsonl", '{"de": "eins", "en": "one"}\n')
    assert read_pairs(path, languages=("en", "de")) == [Pair("one", "eins")]
    path = write(tmp_path / "c.jsonl", '{"source": "one", "target": "eins"}\n')
    assert read_pairs(path, languages=("en", "de")) == [Pair("one", "eins")]


@pytest.mark.parametrize("languages", [("en", "de"), ("en-US", "de_DE"), ("EN", "DE-at"), None])
def test_languages_of_a_translation_memory_match_with_and_without_regions(
    tmp_path: Path, languages: tuple[str, str] | None
) -> None:
    path = write(tmp_path / "a.tmx", tmx(PAIRS))
    if languages == ("EN", "DE-at"):
        report = TextReport()
        with pytest.raises(DataError, match="gave no pair: 3 lines of the text left out: no text in 'DE-at'"):
            read_pairs(path, languages=languages, report=report)
    else:
        assert read_pairs(path, columns=languages) == PAIRS


def test_a_translation_memory_of_unclear_direction_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx", tmx(PAIRS, source="*all*"))
    with pytest.raises(DataError, match=r"has texts in 'en-us', 'de-de', and the header names '\*all\*' as the source"):
        read_pairs(path)
    assert read_pairs(path, columns=("de", "en"))[0] == Pair("eins, zwei", "one, two")


def test_inline_codes_of_a_translation_memory_are_left_out(tmp_path: Path) -> None:
    segment = (
        'Press <bpt i="1">&lt;b&gt;</bpt>Start<ept i="1">&lt;/b&gt;<sub>x</sub></ept><ph/>,\n   <hi>then</hi> wait.'
    )
    unit = f"<tu><tuv lang='en'><prop>p</prop><seg>{segment}</seg></tuv><tuv lang='de'><seg>x</seg></tuv></tu>"
    path = write(tmp_path / "a.tmx", f'<tmx><header srclang="en"/><body>{unit}</body></tmx>')
    report = TextReport()
    assert read_pairs(path, report=report) == [Pair("Press Start, then wait.", "x")]
    assert report.mended == {"texts with inline codes": 1, "texts with line breaks": 1}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1", "windows-1252"])
def test_a_translation_memory_may_have_another_encoding(tmp_path: Path, encoding: str) -> None:
    declared = "utf-8" if encoding == "utf-8-sig" else encoding
    pairs = [Pair("cafe", "Café"), Pair("x", "ä" * 70_000)]
    text = tmx(pairs, head=f'<?xml version="1.0" encoding="{declared}"?>')
    assert read_pairs(write(tmp_path / "a.tmx", text.encode(encoding))) == pairs
    with pytest.raises(DataError, match="is encoded in 'koi8-r'; convert it to UTF-8"):
        read_pairs(write(tmp_path / "a.tmx", text.replace(declared, "koi8-r")))


def test_a_unit_without_one_of_the_languages_is_left_out_and_counted(tmp_path: Path) -> None:
    only = "<tu><tuv xml:lang='fr'><seg>trois</seg></tuv></tu>\n"
    path = write(tmp_path / "a.tmx", tmx(PAIRS).replace("<body>\n", f"<body>\n{only}"))
    report = TextReport()
    assert read_pairs(path, columns=("en", "de"), report=report) == PAIRS
    assert b"".join(report.blocks()).decode().splitlines()[1:] == [f"{path}\t4\tno text in 'en'\ttrois"]


def test_messages_that_are_not_translated_or_fuzzy_are_left_out_and_counted(tmp_path: Path) -> None:
    entries = """
#. a plural
#: src/a.c:3
msgctxt "menu"
msgid "%d file\\n"
msgid_plural "%d files"
msgstr[0] "%d Datei\\n"
msgstr[1] "%d "
"Dateien"

#, c-format, fuzzy
#| msgid "old"
msgid "new"
msgstr "alt"
msgid "untranslated"
msgstr ""

#~ msgid "obsolete"
#~ msgstr "veraltet"
"""
    path = write(tmp_path / "de.po", po(PAIRS) + entries)
    report = TextReport()
    assert read_pairs(path, report=report) == [*PAIRS, Pair("%d file", "%d Datei"), Pair("%d files", "%d Dateien")]
    assert [line.split("\t")[1:] for line in b"".join(report.blocks()).decode().splitlines()[1:]] == [
        ["28", "fuzzy", "new"],
        ["30", "not translated", "untranslated"],
    ]
    reverse = [Pair(pair.target, pair.source) for pair in PAIRS]
    assert read_pairs(path, columns=("msgstr", "msgid"))[:3] == reverse
    assert (
        read_pairs(path, languages=("en", "de"))[:3] == PAIRS and read_pairs(path, columns=("de", "en"))[:3] == reverse
    )
    with pytest.raises(DataError, match="says that it translates into 'de', but the sides are named 'en' and 'fr'"):
        read_pairs(path, languages=("en", "fr"))
    with pytest.raises(DataError, match="is encoded in ISO-8859-1; convert it to UTF-8"):
        read_pairs(write(path, po(PAIRS).replace("UTF-8", "ISO-8859-1")))


def test_line_breaks_inside_a_text_become_spaces(tmp_path: Path) -> None:
    report = TextReport()
    path = write(tmp_path / "a.csv", csv([Pair("one\n two", "eins"), Pair("x", "y")]))
    assert read_pairs(path, report=report) == [Pair("one two", "eins"), Pair("x", "y")]
    assert report.mended == {"Windows line endings": 2, "texts with line breaks": 1}


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package, name in (("zstandard", "a.tsv.zst"), ("pyarrow", "a.parquet")):
        monkeypatch.setitem(__import__("sys").modules, package, None)
        extra = name.rpartition(".")[2].replace("zst", "zstd")
        with pytest.raises(MissingExtra, match=rf"this needs the package '{package}': .*\[{extra}\]"):
            read_pairs(write(tmp_path / name, zstandard.compress(b"a\tb\n") if "zst" in name else b"PAR1"))


def test_a_test_set_is_read_in_the_direction_of_the_model(tmp_path: Path) -> None:
    path = write(tmp_path / "test.tmx", tmx([Pair("This is a book.", "Das ist ein Buch.")]))
    for run in ("de-en", "en-de"):
        [found] = regard.evaluate(run, pairs=path, device="cpu")
        scores = {score.name: score.value for score in found.scores}
        assert found.num_pairs == 1 and scores["exact"] == 100


# Hostile files


@pytest.mark.parametrize("packed", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("format", ["tsv", "jsonl", "tmx", "po"])
def test_a_bomb_is_refused_before_it_has_unpacked(tmp_path: Path, format: str, packed: str, monkeypatch) -> None:
    monkeypatch.setattr("regard.text.compression.FREE_BYTES", 2**18)
    start = {"tmx": b"<tmx><header/><body>", "po": b'msgid "a"\nmsgstr "b"\n'}.get(format, b"")
    much = b"a" * 1000
    line = {"tsv": b"a\t%s\n", "jsonl": b'{"source": "a", "target": "%s"}\n', "tmx": b"<tu>%s</tu>", "po": b"# %s\n"}[
        format
    ]
    path = write(tmp_path / f"bomb.{format}{packed}", PACK[packed](start + line % much * 5000))
    with pytest.raises(DataError, match="unpacks to more than 250 times its size, as text does not"):
        read_pairs(path, columns=("en", "de") if format == "tmx" else None)


def test_text_that_compresses_as_text_does_is_no_bomb(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("regard.text.compression.FREE_BYTES", 2**10)
    pairs = [Pair(f"the number {n}", f"die Zahl {n}") for n in range(10_000)]
    for ending, pack in PACK.items():
        assert read_pairs(write(tmp_path / f"a.tsv{ending}", pack(CONTENT["tsv"](pairs)))) == pairs


def test_a_text_that_parquet_stores_once_for_many_rows_is_not_copied(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as tables

    texts = arrow.DictionaryArray.from_arrays(arrow.array([0] * 1000, arrow.int32()), arrow.array(["x" * 2**20]))
    tables.write_table(arrow.table({"source": texts, "target": texts}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 2**18
    with pytest.raises(DataError, match="has 1,000 rows with 1,048,576,000 bytes of text, more than 268,435,456"):
        read_pairs(tmp_path / "a.parquet")


def test_parquet_with_missing_texts_other_types_and_damage(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as tables

    rows = [{"translation": {"en": "a", "de": "b"}}, {"translation": None}, {"translation": {"en": "c", "de": None}}]
    path, report = tmp_path / "a.parquet", TextReport(skip=True)
    tables.write_table(arrow.Table.from_pylist(rows), path)
    assert read_pairs(path, columns=("en", "de"), report=report) == [Pair("a", "b")]
    assert b"".join(report.blocks()).decode().splitlines()[1:] == [
        f"{path}\t2\tempty source\t",
        f"{path}\t3\tempty target\tc",
    ]
    with pytest.raises(DataError, match=r"row 2 of .*a\.parquet has an empty source side"):
        read_pairs(path, columns=("en", "de"))
    tables.write_table(arrow.table({"source": ["a", "b"], "target": [1, 2]}), path)
    with pytest.raises(DataError, match=r"the column 'target' of .* is of type int64, not text"):
        read_pairs(path)
    invalid = arrow.array([b"a", b"\xff"]).view(arrow.string())
    tables.write_table(arrow.table({"source": invalid, "target": ["x", "y"]}), path)
    report = TextReport(skip=True)
    assert read_pairs(path, report=report) == [Pair("a", "x")] and report.left_out == {"not UTF-8": 1}
    whole = path.read_bytes()
    for damaged in (whole[:-10], whole[: len(whole) // 2] + b"\xff" * 20 + whole[len(whole) // 2 + 20 :], b"PAR1"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.parquet cannot be read as Parquet|has no column"):
            read_pairs(path)
    with pytest.raises(DataError, match="Parquet, which is compressed inside; give the file itself"):
        read_pairs(write(tmp_path / "b.parquet.gz", gzip.compress(whole)))


def test_xz_may_not_ask_for_much_memory(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 2**29}]
    path = write(tmp_path / "a.tsv.xz", lzma.compress(b"a\tb\n", filters=filters))
    with pytest.raises(DataError, match=r"damaged xz file.*[Mm]emory"):
        read_pairs(path)


LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>
<tmx><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>&c;</seg></tuv></tu></body></tmx>"""
OUTSIDE = """<!DOCTYPE tmx [<!ENTITY file SYSTEM "file:///etc/hostname">]>
<tmx><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>&file;</seg></tuv></tu></body></tmx>"""
PARAMETER = """<!DOCTYPE tmx [<!ENTITY % more SYSTEM "http://example.org/more.dtd"> %more;]>
<tmx><header srclang="en"/><body/></tmx>"""


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (LAUGHS, r"line 2 of .* declares an entity \('a'\), which could expand without end"),
        (OUTSIDE, r"line 1 of .* declares an entity \('file'\)"),
        (PARAMETER, r"line 1 of .* declares an entity \('more'\)"),
        ("<tmx>" + "<body>" * 100_000, "is nested too deeply"),
        ("<tmx><header a='" + "x" * 2**21, "has a tag of more than 1,048,576 bytes"),
        ("<tmx><!--" + "x" * 2**21, "has a tag of more than 1,048,576 bytes"),
        ("<html><body>x</body></html>", "is XML but not TMX: its first element is 'html'"),
        ("<tmx><body><tu></body></tmx>", r"line 1 of .* is not well-formed XML \(mismatched tag\)"),
        ("", "is not well-formed XML"),
        (b"<tmx>" + b"\xff" * 10_000, "is not UTF-8; convert it"),
    ],
)
def test_hostile_xml_is_refused_in_both_modes(tmp_path: Path, content: str | bytes, sentence: str) -> None:
    path = write(tmp_path / "a.tmx", content)
    for skip in (False, True):
        with pytest.raises(DataError, match=sentence):
            read_pairs(path, columns=("en", "de"), report=TextReport(skip=skip))


def test_an_entity_of_a_file_that_is_not_read_spoils_only_its_unit(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx", tmx(PAIRS).replace("three", "three&hellip;"))
    assert read_pairs(path, report=TextReport(skip=True)) == PAIRS[:2]
    with pytest.raises(DataError, match=r"line 12 of .* has an undefined entity \(&hellip;\)"):
        read_pairs(path)


def test_bad_bytes_and_control_characters_spoil_no_other_unit_of_a_translation_memory(tmp_path: Path) -> None:
    text = tmx([*PAIRS, Pair("BAD", "x"), Pair("a CONTROL b", "REFERENCE")]).encode()
    text = text.replace(b"BAD", b"caf\xe9").replace(b"CONTROL", b"\x1f").replace(b"REFERENCE", b"a&#x1F;b")
    report = TextReport(skip=True)
    assert read_pairs(write(tmp_path / "a.tmx", text), report=report) == [*PAIRS, Pair("a   b", "a b")]
    assert report.left_out == {"not UTF-8": 1}
    assert report.mended == {"blocks of XML with control characters": 1}


def test_a_quote_that_is_never_closed_spoils_only_its_line(tmp_path: Path) -> None:
    lines = [f"{n},{n}\n" for n in range(1000)]
    path = write(tmp_path / "a.csv", "source,target\n" + "".join([*lines[:500], '"open,x\n', *lines[500:]]))
    report = TextReport(skip=True)
    assert len(read_pairs(path, report=report)) == 1000
    assert b"".join(report.blocks()).decode().splitlines()[1:] == [f'{path}\t502\tmalformed CSV\t"open,x']
    with pytest.raises(
        DataError, match=r"line 502 of .* is not a CSV record \(unexpected end of data\); close its quotes"
    ):
        read_pairs(path)


def test_a_line_without_end_is_left_out_in_bounded_memory(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "a.tsv"
    with path.open("wb") as file:
        file.write(b"a\tb\n")
        for _ in range(64):
            file.write(b"x" * 2**20)
        file.write(b"\nc\td\n")
    report = TextReport(skip=True)
    tracemalloc.start()
    assert read_pairs(path, report=report) == [Pair("a", "b"), Pair("c", "d")]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**23
    assert b"".join(report.blocks()).decode().splitlines()[1:] == [
        f"{path}\t2\tmore than 100,000 characters\t{'x' * 80}"
    ]
