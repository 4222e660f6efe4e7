"""`regard translate --ray` without Ray: the same code around a pool that returns its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

from regard.cluster import corpus
from regard.cluster.pool import Job
from regard.cluster.worker import Answer


class EchoPool:
    """Answers each job with its own text."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def room(self) -> int:
        return 1

    def run(self, jobs: Iterator[tuple[Any, Any]], size: int, finish: Callable[[Job, Answer], None]) -> None:
        for shard, chunk in jobs:
            finish(Job(shard, chunk), Answer(chunk.texts(), []))


@contextmanager
def without_ray() -> Iterator[None]:
    """Replace the cluster by `EchoPool`."""
    with (
        mock.patch.object(corpus, "Pool", EchoPool),
        mock.patch.object(corpus, "connected", nullcontext),
        mock.patch.object(corpus, "require"),
    ):
        yield
