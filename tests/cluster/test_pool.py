"""The pool of workers with a fake Ray that runs every call in this process: shards are retried, and give up in the end."""

from types import SimpleNamespace

import pytest

from regard.cluster.formats import TextRows
from regard.cluster.output import SourceFile, TextShard
from regard.cluster.pool import MAX_ATTEMPTS, WorkerPool
from regard.cluster.worker import ShardResult
from regard.errors import DataError, DecodeError

FILE = SourceFile("in.txt", size=12, modified=0, sha256="", lines=6)


class FakeRayError(Exception):
    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class FakeRay:
    """Runs a call when its result is fetched. Workers fail `failures` times at the shard that starts in line 3."""

    exceptions = SimpleNamespace(RayError=FakeRayError)

    def __init__(self, failures, error):
        self.failures, self.error = failures, error
        self.started, self.calls = 0, []

    def cluster_resources(self):
        return {"CPU": 2}

    def put(self, value):
        return value

    def remote(self, worker_class):
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=self._start))

    def _start(self, *arguments, **options):
        self.started += 1
        methods = {"prepare": lambda: ("machine", 1), "translate": self._translate}
        return SimpleNamespace(**{name: self._method(function) for name, function in methods.items()})

    def _method(self, function):
        def remote(*arguments):
            self.calls.append((function, arguments))
            return len(self.calls) - 1

        return SimpleNamespace(remote=remote)

    def _translate(self, texts, first):
        if first == 3 and self.failures:
            self.failures -= 1
            raise self.error
        return ShardResult([text.upper() for text in texts], [])

    def wait(self, references, **options):
        return references[:1], references[1:]

    def get(self, reference):
        function, arguments = self.calls[reference]
        try:
            return function(*arguments)
        except Exception as error:
            raise FakeRayError(error) from error

    def kill(self, worker):
        pass


def translate(failures, error=None):
    """Run three shards on two workers; return the fake Ray, the results by shard, and the function that runs them."""
    ray, results = FakeRay(failures, error or ValueError("bad luck")), {}
    pool = WorkerPool(ray, None, None, device="auto", threads=1, on_worker=lambda *where: None, warn=lambda text: None)
    shards = [(TextShard(n, FILE, 1 + 2 * n, 2), TextRows([f"a{n}", f"b{n}"])) for n in range(3)]

    def finish(attempt, result):
        results[attempt.shard.number] = result.translations

    return ray, results, lambda: pool.run(iter(shards), pool.capacity(), finish)


@pytest.mark.parametrize("failures", [0, MAX_ATTEMPTS - 1])
def test_every_shard_is_translated_although_workers_fail(failures):
    ray, results, run = translate(failures)
    run()
    assert results == {0: ["A0", "B0"], 1: ["A1", "B1"], 2: ["A2", "B2"]}
    assert ray.started == 2 + failures


def test_a_shard_that_always_fails_ends_the_run_and_others_are_kept():
    _, results, run = translate(MAX_ATTEMPTS)
    with pytest.raises(
        DecodeError, match=r"lines 3 to 4 of in\.txt failed 4 times; the last error: ValueError: bad luck"
    ):
        run()
    assert results.keys() == {0, 2}


def test_an_error_of_ours_is_not_retried():
    ray, _, run = translate(1, DataError("line 3 is invalid"))
    with pytest.raises(DataError, match="line 3 is invalid"):
        run()
    assert ray.started == 2
