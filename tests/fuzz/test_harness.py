"""Tests of the fuzzer itself: it detects what it must detect."""

import os
import subprocess
import sys

import pytest

from tests.fuzz.application import BadAnswer, check_answer
from tests.fuzz.apply import make_case
from tests.fuzz.bases import Base
from tests.fuzz.binary_edits import apply_tensors, parse_message, read_header, render_message
from tests.fuzz.mutate import Case
from tests.fuzz.sandbox import SECRET, Sandbox
from tests.fuzz.tree_edits import apply_edit, as_json, as_toml

BASE = Base("small", {"card.json": b'{"name": "a"}', "final/weights.bin": b"12345"})
IN_A_NAMESPACE = """
import os, sys
from pathlib import Path
from tests.fuzz.isolation import isolate
inside, outside = Path(sys.argv[1]), Path(sys.argv[2])
obstacle = isolate(inside)
if obstacle:
    sys.exit(f"cannot isolate: {obstacle}")
(inside / "file").write_text("x")
os.utime(inside / "file", ns=(0, 0))
(inside / "file").read_text()
try:
    outside.write_text("changed")
except OSError as error:
    print(error.strerror, (inside / "file").stat().st_atime_ns > 0)
"""


@pytest.fixture
def sandbox(tmp_path):
    found = Sandbox(tmp_path, {"small": BASE}, isolated=False)
    found.clear()
    yield found
    os.chdir("/")


def test_an_isolated_process_writes_only_to_its_folder_and_reads_are_detected(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    command = [sys.executable, "-c", IN_A_NAMESPACE, str(inside), str(outside)]
    result = subprocess.run(command, capture_output=True, text=True)
    if "cannot isolate" in result.stderr:
        pytest.skip(result.stderr)
    assert result.stdout == "Read-only file system True\n", result.stderr
    assert not outside.exists() and not list(inside.iterdir())


def test_a_write_through_a_link_is_detected_and_restored(sandbox):
    case = Case("card", "small", sealed=False, mutations=[{"kind": "link", "file": "card.json", "to": "outside"}])
    make_case(case, BASE, sandbox.run, sandbox.outside / "small")
    assert not sandbox.violations("small")
    (sandbox.run / "card.json").write_text("changed")
    assert sandbox.violations("small") == ["changed outside/card.json"]
    assert not sandbox.violations("small")


def test_a_secret_in_a_result_is_detected(sandbox):
    sandbox.run.mkdir()
    assert not sandbox.leaks("nothing")
    (sandbox.run / "report.html").write_text(f"<p>{SECRET}</p>")
    assert sandbox.leaks(SECRET) == ["secret in the output", "secret in report.html"]


def test_an_edit_inserts_a_raw_value_into_json_and_toml():
    tree = {"train": {"steps": 5, "lr": 1.0}}
    apply_edit(tree, {"action": "set", "path": ["train", "steps"], "value": "10**400"})
    apply_edit(tree, {"action": "twice", "path": ["train", "lr"]})
    assert as_json(tree, indent=None) == f'{{"train": {{"steps": 1{"0" * 400}, "lr": 1.0, "lr": 1.0}}}}'
    assert as_toml(tree) == f"[train]\nsteps = 1{'0' * 400}\nlr = 1.0\nlr = 1.0"


def test_a_tensor_is_dropped_without_a_gap():
    header = '{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}'
    content = len(header).to_bytes(8, "little") + header.encode() + b"123"
    found = apply_tensors(content, {"action": "drop", "tensor": "a"})
    assert read_header(found) == ({"b": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"3")


def test_a_parsed_message_is_rendered_unchanged():
    content = bytes.fromhex("0a0568656c6c6f1001150000803f")
    assert render_message(parse_message(content)) == content


def test_a_response_must_be_a_success_or_an_error_sentence():
    request = {"method": "POST", "ends": "normal"}
    check_answer(request, 200, b"anything")
    check_answer(request, 422, b'{"error": "no text"}')
    for status, body in ((500, b'{"error": "x"}'), (404, b"Not Found"), (400, b'{"error": 5}'), (None, b"")):
        with pytest.raises(BadAnswer):
            check_answer(request, status, body)
