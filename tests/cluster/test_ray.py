"""Translation on a real local Ray instance. Needs `pip install 'regard[ray]'` (400 MB, therefore not in CI)."""

import os
import random
import re
import signal
import socket
import sys

import pytest

import regard
from regard.cluster import corpus, pool
from regard.cluster.corpus import ShardDone, WorkerReady, translate_corpus
from regard.cluster.worker import pack_model
from regard.config import SearchOptions
from regard.errors import ConfigError, DataError, DecodeError, MissingExtra, install_command
from tests.commands import regard as command

FAST = ["train.steps=30", "train.validate_pairs=10", "train.checkpoint_every=30", "train.threads=1"]
LINES, SHARD = 3000, 500


@pytest.fixture(scope="module")
def ray():
    """One Ray instance for all tests of this file, because starting it takes seconds."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'regard[ray]'")
    with pool.connected() as ray:
        yield ray


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run of the copy recipe."""
    return regard.train("copy", out=tmp_path_factory.mktemp("ray") / "run", overrides=FAST).run.path


@pytest.fixture(scope="module")
def folder(run):
    """The folder of the run, of some lines, and of their translations without Ray."""
    folder = run.parent
    generator = random.Random(1)
    lines = [" ".join(generator.choices("abcdefgh", k=generator.randint(0, 8))) for _ in range(LINES)]
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    result = command("translate", "run", "in.txt", "--threads", "1", cwd=folder)
    assert result.returncode == 0, result.stderr
    (folder / "plain.txt").write_text(result.stdout)
    return folder


def joined(output):
    return "".join(path.read_text() for path in sorted(output.glob("part-*.txt")))


def translate(folder, output, source="in.txt", **options):
    return translate_corpus(
        folder / "run", str(folder / source), output, **{"shard_lines": SHARD, "device": "cpu", "workers": 1, **options}
    )


def test_the_command_gives_the_same_lines_with_and_without_ray(ray, folder, tmp_path):
    result = command("translate", "run", "in.txt", str(tmp_path / "out"), "--ray", "--workers", "1", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert f"cat {tmp_path / 'out'}/part-*.txt" in result.stderr and "lines/s" in result.stderr
    assert joined(tmp_path / "out") == (folder / "plain.txt").read_text()


def test_killed_workers_do_not_change_the_output(ray, folder, tmp_path):
    workers, killed, warnings = [], [], []

    def on_event(event):
        if isinstance(event, WorkerReady):
            workers.append(event.process)
        elif isinstance(event, ShardDone) and not killed:
            killed.extend(workers)
            for process in killed:
                os.kill(process, signal.SIGKILL)

    outcome = translate(folder, tmp_path / "out", on_event=on_event, warn=warnings.append)
    assert killed and len(workers) > len(killed)
    assert any("worker was lost" in text for text in warnings)
    assert outcome.translated == outcome.shards == LINES // SHARD
    assert joined(tmp_path / "out") == (folder / "plain.txt").read_text()


def test_parquet_in_and_out_keeps_columns_rows_and_missing_values(ray, folder, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    lines = (folder / "in.txt").read_text().split("\n")[:LINES]
    texts = [None, *lines[1:1000]]
    table = arrow.table({"id": list(range(1000)), "body": texts})
    (tmp_path / "in").mkdir()
    parquet.write_table(table.slice(0, 700), tmp_path / "in" / "a.parquet", row_group_size=90)
    parquet.write_table(table.slice(700), tmp_path / "in" / "b.parquet")
    outcome = translate(folder, tmp_path / "out", source=tmp_path / "in", column="body")
    assert outcome.shards == 3  # 500 and 200 of one file, 300 of the other
    written = arrow.concat_tables(parquet.read_table(path) for path in sorted((tmp_path / "out").glob("*.parquet")))
    plain = (folder / "plain.txt").read_text().split("\n")
    assert written.column_names == ["id", "body", "translation"]
    assert written["id"].to_pylist() == list(range(1000)) and written["body"].to_pylist() == texts
    assert written["translation"].to_pylist() == [None, *plain[1:1000]]
    with pytest.raises(ConfigError, match="has no column 'text'; choose one with --column"):
        translate(folder, tmp_path / "other", source=tmp_path / "in")
    damaged = tmp_path / "in" / "b.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"b\.parquet cannot be read as Parquet"):
        translate(folder, tmp_path / "another", source=tmp_path / "in", column="body")


def test_after_an_error_finished_shards_are_kept_a_second_run_does_the_rest_and_a_third_nothing(
    ray, folder, tmp_path, monkeypatch
):
    def spoil(shards, layout, shard_lines, wanted):
        for shard, rows in original(shards, layout, shard_lines, wanted):
            if shard.number == 3:
                raise DataError("line 1501 of in.txt is invalid")
            yield shard, rows

    original = corpus.read_shards
    with monkeypatch.context() as patched:
        patched.setattr(corpus, "read_shards", spoil)
        with pytest.raises(DataError, match="is invalid"):
            translate(folder, tmp_path / "out")
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    assert len(kept) == 3
    assert translate(folder, tmp_path / "out").translated == LINES // SHARD - 3
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
    assert joined(tmp_path / "out") == (folder / "plain.txt").read_text()

    monkeypatch.setattr(corpus, "connected", lambda: pytest.fail("Ray was used"))
    assert translate(folder, tmp_path / "out").translated == 0
    with pytest.raises(ConfigError, match="shard lines: 500 -> 600"):
        translate(folder, tmp_path / "out", shard_lines=600)


def test_an_error_of_ours_in_a_worker_is_raised_unchanged(ray, folder, tmp_path, monkeypatch):
    model = corpus.pack_model(folder / "run")
    damaged = type(model)({**model.files, "final/weights.safetensors": b"junk"}, model.sha256)
    monkeypatch.setattr(corpus, "pack_model", lambda run: damaged)
    with pytest.raises(regard.RegardError, match=r"weights\.safetensors is damaged"):
        translate(folder, tmp_path / "out")


def test_a_shard_that_fails_repeatedly_ends_the_run(ray, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "MAX_ATTEMPTS", 2)
    monkeypatch.setattr(pool, "RayWorker", FailingWorker)
    with pytest.raises(DecodeError, match=r"lines 501 to 1000 of .*in\.txt failed 2 times; .*ValueError: bad luck"):
        translate(folder, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").glob("part-*")] == ["part-00000.txt"]


class FailingWorker(pool.RayWorker):
    """Fails at every shard but the first."""

    def translate(self, texts, first):
        if first > 1:
            raise ValueError("bad luck")
        return super().translate(texts, first)


def test_a_warning_gives_the_number_of_the_line_in_the_file(run):
    worker = pool.RayWorker(pack_model(run), SearchOptions(beam=1, max_length=1), device="cpu", threads=1)
    worker.prepare()
    result = worker.translate(["a b", None, "a " * 3000], first=7)
    assert result.translations[1] is None and len(result.translations) == 3
    assert [text.split(";")[0] for text in result.warnings] == ["line 9 has 3,000 tokens"]


def test_an_unreachable_cluster_is_reported_immediately(monkeypatch):
    pytest.importorskip("ray", reason="needs Ray: pip install 'regard[ray]'")
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free}")
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(ConfigError, match="does not respond; start it, or unset RAY_ADDRESS"), pool.connected():
        pass


def test_without_ray_the_error_names_the_extra_to_install(run, tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text("a b\n")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=re.escape(install_command("ray"))):
        translate(run.parent, tmp_path / "out", source=tmp_path / "in.txt")
    assert not (tmp_path / "out").exists()
