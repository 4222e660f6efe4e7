"""Lines in blocks: as they arrive from a pipe, and full ones while lines are plentiful."""

import gzip
import io
import os
import threading
from contextlib import suppress

import pytest

from regard.errors import DataError
from regard.text import arriving_lines
from regard.text.arriving_lines import count_file_lines, count_lines, read_blocks


@pytest.fixture
def pipe():
    """The ends of a pipe: a file to read, and a descriptor to write to."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as file:
        yield file, write
        with suppress(OSError):
            os.close(write)


@pytest.fixture
def patient(monkeypatch):
    """A block ends only when it is full or the input ends, however busy the machine is."""
    monkeypatch.setattr(arriving_lines, "QUIET_SECONDS", 60.0)
    monkeypatch.setattr(arriving_lines, "LONGEST_SECONDS", 60.0)


def test_lines_that_have_arrived_are_a_block_while_the_writer_is_still_there(pipe):
    file, write = pipe
    blocks = read_blocks(file, "a pipe", most=100)
    for sent, block in [(b"a\nb\n", ["a", "b"]), (b"c\n", ["c"]), (b"\n", [""])]:
        os.write(write, sent)
        assert next(blocks) == block
    os.close(write)
    assert list(blocks) == []


def test_a_line_that_is_not_complete_does_not_hold_back_those_before_it(pipe):
    file, write = pipe
    blocks = read_blocks(file, "a pipe", most=100)
    os.write(write, b"a\nbeg")
    assert next(blocks) == ["a"]
    os.write(write, b"un\nlast")
    assert next(blocks) == ["begun"]
    os.close(write)
    assert list(blocks) == [["last"]]


def test_a_writer_that_never_pauses_does_not_hold_back_a_line(pipe, monkeypatch):
    monkeypatch.setattr(arriving_lines, "QUIET_SECONDS", 60.0)
    monkeypatch.setattr(arriving_lines, "LONGEST_SECONDS", 0.0)
    file, write = pipe
    os.write(write, b"a\nb")
    assert next(read_blocks(file, "a pipe", most=100)) == ["a"]


def test_blocks_are_full_while_lines_are_plentiful(pipe, patient):
    file, write = pipe
    lines = [f"line {number}" for number in range(10_000)]

    def send():
        with os.fdopen(os.dup(write), "wb") as out:
            os.close(write)
            out.write("".join(f"{line}\n" for line in lines).encode())

    writer = threading.Thread(target=send)
    writer.start()
    blocks = list(read_blocks(file, "a pipe", most=4096))
    writer.join()
    assert [len(block) for block in blocks] == [4096, 4096, 1808]
    assert [line for block in blocks for line in block] == lines


def test_a_file_and_a_stream_without_a_descriptor_are_read_in_full_blocks(tmp_path):
    text = b"".join(b"%d\n" % number for number in range(25))
    for content in (text, gzip.compress(text)):
        (tmp_path / "in").write_bytes(content)
        with (tmp_path / "in").open("rb") as file:
            assert [len(block) for block in read_blocks(file, "a file", most=10)] == [10, 10, 5]
        stream = io.BufferedReader(io.BytesIO(content))
        assert [len(block) for block in read_blocks(stream, "a stream", most=10)] == [10, 10, 5]


def test_an_invalid_line_is_named(pipe):
    file, write = pipe
    os.write(write, b"a\n\xff\n")
    with pytest.raises(DataError, match="line 2 of a pipe is not UTF-8"):
        next(read_blocks(file, "a pipe", most=10))


# Counting


@pytest.mark.parametrize(("text", "count"), [(b"", 0), (b"a\nb\n", 2), (b"a\nb", 2), (b"\n\n", 2)])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_lines_of_a_file_are_counted_without_moving_its_position(tmp_path, text, count, pack):
    (tmp_path / "in").write_bytes(pack(text))
    with (tmp_path / "in").open("rb") as file:
        assert count_lines(file) == count
        assert file.read() == pack(text)


def test_only_the_lines_from_the_position_on_are_counted(tmp_path):
    (tmp_path / "in").write_bytes(b"a\nb\nc\n")
    with (tmp_path / "in").open("rb") as file:
        file.readline()
        assert count_lines(file) == 2


def test_what_cannot_be_read_twice_or_is_damaged_is_not_counted(pipe, tmp_path):
    file, write = pipe
    os.write(write, b"a\n")
    assert count_lines(file) is None
    assert count_lines(io.BufferedReader(io.BytesIO(b"a\n"))) is None
    (tmp_path / "in").write_bytes(gzip.compress(b"a\n" * 1000)[:-9])
    os.mkfifo(tmp_path / "pipe")
    for name in ("in", "pipe", "nothing", "."):
        assert count_file_lines(tmp_path / name) is None
