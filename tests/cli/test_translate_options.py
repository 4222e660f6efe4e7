"""Options of `regard translate`: JSON in and out, glossaries, and files that are continued."""

import json
import os
import signal
import time

import pytest

from regard.cli.translated_lines import PER_BLOCK
from tests.commands import Forked, regard

TEXTS = ["The house on the hill is old.", "She bought a new car yesterday.", "", "I like trains."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    (folder / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (folder / "terms.csv").write_text("house,Gebäude\ncar,Wagen|PKW\n")
    return folder


def test_terms_are_translated_as_the_glossary_says(folder):
    done = regard("translate", "en-de", "in.txt", "--glossary", "terms.csv", cwd=folder)
    lines = done.stdout.split("\n")
    assert "Gebäude" in lines[0] and ("Wagen" in lines[1] or "PKW" in lines[1]) and lines[2] == "", done
    refused = regard("translate", "en-de", "in.txt", "--glossary", "terms.csv", "--beam", "1", cwd=folder)
    assert refused.returncode == 1 and "phrases need a beam of at least 2, and beam is 1" in refused.stderr


@pytest.mark.slow
def test_json_has_scores_of_tokens_and_requests_have_demands(folder):
    requests = [{"text": TEXTS[1], "prefix": "Gestern"}, {"text": TEXTS[0], "phrases": [["Gebäude", "Bauwerk"]]}]
    text = "".join(f"{json.dumps(one)}\n" for one in requests)
    done = regard("translate", "en-de", "--json-input", "--json", cwd=folder, text=text)
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["line"] == 1 and first["text"].startswith("Gestern") and first["tokens"][-1][0] == "</s>"
    assert sum(score for _, score in first["tokens"]) == pytest.approx(
        first["score"] * ((5 + len(first["tokens"])) / 6) ** 0.6, abs=1e-2
    )
    assert "Gebäude" in second["text"] or "Bauwerk" in second["text"]
    bad = regard("translate", "en-de", "--json-input", cwd=folder, text='{"text": "a", "phrase": "b"}\n')
    assert bad.returncode == 1 and "line 1 is not a request such as" in bad.stderr


@pytest.mark.slow
def test_a_list_in_json_and_samples(folder):
    samples = ["--sample", "--beam", "3", "--nbest", "3", "--temperature", "3"]
    lists = [
        json.loads(
            regard("translate", "en-de", "in.txt", "--json", *samples, "--seed", seed, cwd=folder).stdout.split("\n")[0]
        )
        for seed in ("1", "1", "2")
    ]
    assert lists[0] == lists[1] != lists[2]
    assert len(lists[0]["translations"]) == 3


@pytest.mark.slow
def test_a_file_is_written_whole_or_not_at_all(folder):
    whole = regard("translate", "en-de", "in.txt", cwd=folder).stdout
    assert regard("translate", "en-de", "in.txt", "out.txt", cwd=folder).returncode == 0
    assert (folder / "out.txt").read_text() == whole
    again = regard("translate", "en-de", "in.txt", "out.txt", cwd=folder)
    assert again.returncode == 1 and "out.txt is there already; remove it, or name another file" in again.stderr
    lists = regard("translate", "en-de", "in.txt", "list.txt", "--nbest", "2", cwd=folder)
    assert lists.returncode == 1 and "an OUTPUT file needs an INPUT file" in lists.stderr


@pytest.mark.slow
def test_a_killed_command_continues_where_it_was(folder):
    lines = [f"House {number}.\n" for number in range(PER_BLOCK + 100)]
    (folder / "long.txt").write_text("".join(lines))
    command = ["translate", "en-de", "long.txt", "long.de", "--beam", "1", "--threads", "1"]
    process = Forked(command, cwd=folder)
    part = folder / "long.de.part"
    while not (part.exists() and part.read_bytes().count(b"\n") >= PER_BLOCK):
        os.kill(process.pid, 0)  # it has not ended
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with part.open("a") as stream:
        stream.write("half a li")
    other = regard("translate", "en-de", "long.txt", "long.de", "--beam", "2", cwd=folder)
    assert other.returncode == 1 and "was begun with other settings (beam)" in other.stderr
    done = regard(*command, cwd=folder)
    assert done.returncode == 0 and f"continuing long.de after {PER_BLOCK:,} lines" in done.stderr
    found = (folder / "long.de").read_text().splitlines()
    assert len(found) == PER_BLOCK + 100 and all(str(number) in line for number, line in enumerate(found))
    assert not part.exists() and not part.with_name("long.de.part.json").exists()
