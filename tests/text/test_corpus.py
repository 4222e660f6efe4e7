"""Reading parallel text: what is read, and the error message for each kind of bad input."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.errors import DataError
from regard.text.corpus import Pair, read_pairs
from regard.text.lines import MAX_LINE_CHARS, read_lines, stream_lines
from regard.text.text_report import TextReport

Write = Callable[[str, bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_bytes(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write_bytes


def refusal(*paths: Path, read: Callable[..., object] = read_pairs) -> str:
    """Return the error message of reading. It is one line and names one of the files."""
    with pytest.raises(DataError) as caught:
        read(*paths)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert any(str(path) in sentence for path in paths)
    return sentence


def test_two_parallel_files_give_pairs_in_order(write: Write) -> None:
    pairs = read_pairs(write("a.en", b"one\ntwo\n"), write("a.de", b"eins\nzwei\n"))
    assert pairs == [Pair("one", "eins"), Pair("two", "zwei")]


def test_the_last_line_needs_no_newline(write: Write) -> None:
    assert read_lines(write("a", b"one\ntwo")) == read_lines(write("b", b"one\ntwo\n")) == ["one", "two"]


def test_one_side_may_have_empty_lines(write: Write) -> None:
    assert read_lines(write("a", b"one\n\nthree\n\n")) == ["one", "", "three", ""]


@pytest.mark.parametrize("inside", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_only_a_newline_ends_a_line(write: Write, inside: str) -> None:
    assert read_lines(write("a", f"one{inside}still one\ntwo\n".encode())) == [f"one{inside}still one", "two"]


def test_gzip_is_detected_by_content_and_not_by_name(write: Write) -> None:
    packed = gzip.compress(b"one\ntwo\n")
    assert read_lines(write("no_ending", packed)) == ["one", "two"]
    assert read_lines(write("plain.gz", b"one\ntwo\n")) == ["one", "two"]


def test_concatenated_gzip_files_are_read_as_one(write: Write) -> None:
    assert read_lines(write("a.gz", gzip.compress(b"one\n") + gzip.compress(b"two\n"))) == ["one", "two"]


def test_a_byte_order_mark_is_removed_only_at_the_start(write: Write) -> None:
    assert read_lines(write("a", "\ufeffone\n\ufefftwo\n".encode())) == ["one", "\ufefftwo"]


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(b"one\ntwo\n"),))
    writer.start()
    assert read_lines(pipe) == ["one", "two"]
    writer.join()


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.TSV", "pairs.tsv.gz"])
def test_a_tsv_table_has_source_and_target(write: Write, name: str) -> None:
    assert read_pairs(write(name, b"one\teins\ntwo\tzwei\n")) == [Pair("one", "eins"), Pair("two", "zwei")]


def test_a_json_table_has_source_and_target_and_may_have_more(write: Write) -> None:
    path = write("pairs.jsonl", b'{"source": "a\\tb", "target": "\\u00e9"}\n{"id": 7, "target": "y", "source": "x"}\n')
    assert read_pairs(path) == [Pair("a\tb", "é"), Pair("x", "y")]


def test_a_line_of_exactly_the_maximum_length_is_read(write: Write) -> None:
    line = "年" * MAX_LINE_CHARS
    assert read_lines(write("a", b"\xef\xbb\xbf" + line.encode())) == [line]
    assert read_lines(write("b", "🙂".encode() * MAX_LINE_CHARS + b"\n")) == ["🙂" * MAX_LINE_CHARS]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "no file" in refusal(tmp_path / "absent.en", tmp_path / "absent.de")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path, read=read_lines)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_an_empty_file_is_refused(write: Write, content: bytes) -> None:
    assert "is empty" in refusal(write("a.tsv", content))
    assert "is empty" in refusal(write("a.en", content), read=read_lines)


def test_files_of_different_length_are_refused_with_both_counts(write: Write) -> None:
    source, target = write("train.en", b"one\ntwo\nthree\n"), write("train.de", b"eins\nzwei\n")
    assert f"{source} has 3 lines but {target} has 2;" in refusal(source, target)


def test_windows_line_endings_are_removed_and_counted(write: Write) -> None:
    report = TextReport()
    assert list(stream_lines(write("a", b"one\ntwo\r\nthree\r"), report)) == ["one", "two", "three"]
    assert report.mended == {"Windows line endings": 2}


def test_invalid_utf8_is_refused_with_line_and_byte(write: Write) -> None:
    sentence = refusal(write("latin1", "eins\nfünf\n".encode("latin-1")), read=read_lines)
    assert sentence.startswith("line 2 of ")
    assert "byte 2 of the line is 0xfc" in sentence


def test_binary_and_utf16_files_are_refused(write: Write) -> None:
    assert refusal(write("model.bin", b"PK\n\0\0"), read=read_lines).startswith("line 2 of ")
    assert "NUL byte" in refusal(write("utf16", "one\ntwo\n".encode("utf-16")), read=read_lines)


@pytest.mark.parametrize(
    ("characters", "shown"), [(MAX_LINE_CHARS + 1, "100,001 characters"), (1_000_000, "1,000,000 characters")]
)
@pytest.mark.parametrize("letter", ["a", "é", "🙂"])
@pytest.mark.parametrize("end", ["\n", "\nlast\n", ""])
def test_a_line_too_long_is_refused_with_its_length(
    write: Write, characters: int, shown: str, letter: str, end: str
) -> None:
    sentence = refusal(write("a", ("short\n" + letter * characters + end).encode()), read=read_lines)
    assert sentence.startswith("line 2 of ")
    assert shown in sentence


@pytest.mark.parametrize("blank", ["", " ", "\u00a0\u3000"])
def test_a_blank_side_is_refused_with_its_file_and_line(write: Write, blank: str) -> None:
    full, holed = write("full", b"one\ntwo\n"), write("holed", f"eins\n{blank}\n".encode())
    assert f"line 2 of {holed} has an empty target side" in refusal(full, holed)
    assert f"line 2 of {holed} has an empty source side" in refusal(holed, full)
    table = write("pairs.tsv", f"one\teins\ntwo\t{blank}\n".encode())
    assert f"line 2 of {table} has an empty target side" in refusal(table)


def noise(size: int) -> bytes:
    """Return lines that do not compress well, so that truncating the file loses some of them."""
    return b"".join(b"%d\n" % (n * n * 7919 % 1_000_003) for n in range(size))


def test_a_truncated_gzip_is_refused_with_the_last_line_read(write: Write) -> None:
    sentence = refusal(write("cut.gz", gzip.compress(noise(20_000))[:-5_000]), read=read_lines)
    assert "damaged gzip file after line " in sentence


def test_a_corrupt_gzip_is_refused(write: Write) -> None:
    packed = bytearray(gzip.compress(noise(20_000)))
    packed[len(packed) // 2] ^= 0xFF
    assert "damaged gzip file" in refusal(write("flipped.gz", bytes(packed)), read=read_lines)
    assert "damaged gzip file" in refusal(write("tail.gz", gzip.compress(b"one\n") + b"junk"), read=read_lines)


@pytest.mark.parametrize(
    ("line", "columns"), [(b"zwei", "1 column"), (b"", "1 column"), (b"two\tzwei\t0.9", "3 columns")]
)
def test_a_tsv_row_without_two_columns_is_refused(write: Write, line: bytes, columns: str) -> None:
    sentence = refusal(write("pairs.tsv", b"one\teins\n" + line + b"\n"))
    assert sentence.startswith("line 2 of ")
    assert f"has {columns}; it needs 2" in sentence


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{'source': 1}", "malformed"),
        (b"", "truncated"),
        (b'{"source": "x", "target": "\\ud800"}', "is not a pair"),
        (b'{"source": "x"}', "target"),
        (b'{"source": 7, "target": "y"}', "'source' is of type int, not text"),
        (b'["x", "y"]', "Expected `object`, got `array`"),
        (b'{"source": "x", "target": "y\\u0000z"}', "NUL inside its target"),
        (b'{"source": "\\u0000", "target": "y"}', "NUL inside its source"),
        (b'{"source": "x", "target": null}', "empty target side"),
        (b'{"source": "x", "more": ' + b"[" * 50_000, "is not a pair (maximum recursion depth"),
    ],
)
def test_a_json_row_that_is_not_a_pair_is_refused(write: Write, line: bytes, reason: str) -> None:
    sentence = refusal(write("pairs.jsonl", b'{"source": "a", "target": "b"}\n' + line + b"\n"))
    assert sentence.startswith("line 2 of ")
    assert reason in sentence


@pytest.mark.parametrize("name", ["pairs.doc", "pairs.txt.gz", "pairs"])
def test_a_table_of_unknown_format_is_refused_with_the_known_ones(write: Write, name: str) -> None:
    sentence = refusal(write(name, b"one\teins\n"))
    assert ".tsv, .csv, .jsonl, .ndjson, .tmx, .tbx, .po, .parquet (.gz, .xz, .zst may follow)" in sentence
    assert "two parallel files" in sentence
