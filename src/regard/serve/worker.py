"""The worker process: runs models, so that their memory, crashes and the GIL do not affect the server.

python -m regard.serve.worker DEVICE auto|float32|bfloat16 auto|int8|float THREADS TASKS auto|engine|torch [RUN LANGUAGE]...

LANGUAGE is the one to translate into, or empty if the run has one only. A run that is named more than once is loaded once.

Messages are lines of JSON. The server sends up to TASKS tasks at a time, and `{"cancel": ID}` at any time. The worker sends

    {"loaded": true}                once, when its models are loaded
    {"beat": true}                  every quarter of a second, as long as its threads run
    {"id": ID, "ready": [...]}      pairs of a sentence's number in the task and its result
    {"id": ID, "partial": "..."}    the text so far of a stream
    {"id": ID, "end": null}         the end of the task; an object instead of null describes an error. The last results of
                                    a task are in the same message.

It exits as soon as its input ends, so that it never outlives the server. It ignores SIGINT and SIGTERM, which a terminal
sends to all processes, so that accepted requests are finished.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

import msgspec

from regard.signals import STOPPING

if TYPE_CHECKING:
    from regard.config import SearchOptions, SearchPrecision
    from regard.decoding.translation import Translation
    from regard.decoding.translator import Translator
    from regard.loading import EngineChoice

BEAT_SECONDS = 0.25


class Channel:
    """The worker's end of the pipes to the server."""

    def __init__(self) -> None:
        self.tasks: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.cancelled: set[int] = set()  # ids of tasks that have not ended
        self.running: set[int] = set()  # ids of tasks that have come and not ended
        self._output = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)  # output of libraries must not mix with messages
        self._lock = threading.Lock()
        for loop in (self._read, self._beat):
            threading.Thread(target=loop, daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        line = msgspec.json.encode(message) + b"\n"
        with self._lock:
            self._output.write(line)
            self._output.flush()

    def end(self, task: int, error: dict[str, str] | None, ready: Sequence[tuple[int, Any]] = ()) -> None:
        """Send that a task has ended, unless it has ended before."""
        with self._lock:
            ended = task not in self.running
            self.running.discard(task)
            self.cancelled.discard(task)
        if not ended:
            self.send({"id": task, "ready": ready, "end": error})

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            message: dict[str, Any] = msgspec.json.decode(line)
            if "cancel" in message:
                self.cancelled |= {message["cancel"]} & self.running
            else:
                self.running.add(message["id"])
                self.tasks.put(message)
        os._exit(0)  # the server has ended or closes this worker; running work is obsolete

    def _beat(self) -> None:
        while True:
            self.send({"beat": True})
            time.sleep(BEAT_SECONDS)


@lru_cache(64)
def search_options(given: tuple[tuple[str, Any], ...]) -> SearchOptions:
    """Return the options of a task. Most tasks have the same, and checking them takes long."""
    from regard.config import SearchOptions

    return SearchOptions(**dict(given))


def run_task(task: dict[str, Any], translator: Translator, channel: Channel) -> None:
    """Run one task and send its results; with the last of them the task has ended."""
    from regard.errors import Cancelled, DeadlineExceeded

    number, ends = task["id"], time.monotonic() + task["seconds"]
    options = search_options(tuple(task["options"].items()))

    def check() -> None:
        if number in channel.cancelled:
            raise Cancelled("the task was cancelled")
        if time.monotonic() > ends:
            raise DeadlineExceeded("the task timed out")

    left = len(task["sentences"])

    def send_ready(found: list[tuple[int, Any]]) -> None:
        nonlocal left
        left -= len(found)
        if left:
            channel.send({"id": number, "ready": found})
        else:
            channel.end(number, None, found)

    check()
    if task["kind"] == "translate":
        from regard.decoding.requests import Request

        texts = [one if isinstance(one, str) else Request(**one) for one in task["sentences"]]
        for some in translator.each(texts, options=options, check=check):
            send_ready([(place, [_as_list(one) for one in best]) for place, best in some])
    elif task["kind"] == "look":
        from regard.explain.trace_json import trace_as_json
        from regard.explain.translation_trace import trace_translation

        (text,) = task["sentences"]
        trace = trace_translation(translator, text, options=options, check=check, **task["arguments"])
        send_ready([(0, trace_as_json(trace))])
    else:
        from regard.text.tokenizer import EOS

        (text,) = task["sentences"]
        source_ids, vocabulary = translator.encode(text, protect=options.protect)
        source_ids, decode = [*source_ids[: translator.longest_source], EOS], vocabulary.decode
        demands = translator.demands([(source_ids, vocabulary)], shortlist=options.shortlist)

        def send_partial(ids: list[int]) -> None:
            channel.send({"id": number, "partial": decode(ids)})

        ids = translator.backend.stream(
            source_ids, options=options, on_token=send_partial, demands=demands, check=check
        )
        send_ready([(0, decode(ids))])


def _as_list(one: Translation) -> list[Any]:
    sure = one.confidence
    return [one.text, one.score, one.lost, one.tokens, None if sure is None else [sure.sentence, sure.words]]


def main(
    device: str,
    precision: SearchPrecision,
    int8: bool | None,
    *,
    threads: int,
    tasks: int,
    engine: EngineChoice,
    models: list[tuple[str, str]],
) -> None:
    """Run tasks until the input ends, up to `tasks` of them at once."""
    for one in STOPPING:
        signal.signal(one, signal.SIG_IGN)
    # Before the slow imports, so that the server receives beats meanwhile.
    channel = Channel()
    from regard import loading

    loaded = {
        run: loading.load_translator(
            run,
            "serve",
            device=device,
            int8=int8,
            precision=precision,
            # Clients cannot fill the log with warnings.
            warn=lambda text: None,
            engine=engine,
            threads=threads,
        )
        for run in dict.fromkeys(run for run, _ in models)
    }
    translators = [loaded[run].into(language or None) for run, language in models]
    channel.send({"loaded": True})
    for _ in range(tasks - 1):
        threading.Thread(target=run_tasks, args=(translators, channel), daemon=True).start()
    run_tasks(translators, channel)


def run_tasks(translators: list[Translator], channel: Channel) -> None:
    """Run one task after another. With the engine, the searches of several threads share its batches."""
    from regard.errors import RegardError

    while True:
        task = channel.tasks.get()
        end: dict[str, str] | None = None
        try:
            run_task(task, translators[task["model"]], channel)
        except Exception as error:
            end = {"kind": "mistake" if isinstance(error, RegardError) else "error", "error": type(error).__name__}
            end["text"] = str(error)[:1000]
        channel.end(task["id"], end)


if __name__ == "__main__":
    main(
        sys.argv[1],
        cast("SearchPrecision", sys.argv[2]),
        {"int8": True, "float": False, "auto": None}[sys.argv[3]],
        threads=int(sys.argv[4]),
        tasks=int(sys.argv[5]),
        engine=cast("EngineChoice", sys.argv[6]),
        models=list(zip(sys.argv[7::2], sys.argv[8::2], strict=True)),
    )
