"""`regard translate --ray` without Ray: the real code with a pool that returns its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

from regard.cluster import corpus
from regard.cluster.pool import ShardAttempt
from regard.cluster.worker import ShardResult


class EchoPool:
    """Returns the text of each shard as its translation."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def capacity(self) -> int:
        return 1

    def run(
        self, shards: Iterator[tuple[Any, Any]], size: int, finish: Callable[[ShardAttempt, ShardResult], None]
    ) -> None:
        for shard, rows in shards:
            finish(ShardAttempt(shard, rows), ShardResult(rows.texts(), []))


@contextmanager
def without_ray() -> Iterator[None]:
    """Replace the cluster by `EchoPool`."""
    with (
        mock.patch.object(corpus, "WorkerPool", EchoPool),
        mock.patch.object(corpus, "connected", nullcontext),
        mock.patch.object(corpus, "require"),
    ):
        yield
