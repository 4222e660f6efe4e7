"""A process that translates for the server, so that Python's lock is not shared with it.

python -m regard.serve.worker DEVICE float32|int8 THREADS RUN...

A line in says what to translate. The lines out say what is ready, sentences by their numbers; the last one is null, or
what went wrong.

It ends when its input does, and not by signals: what the server has accepted is finished.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.decoding.hypotheses import SearchOptions
from regard.decoding.translator import Ready, Translation

ATTEMPTS = 2  # a worker that dies is started anew, and told again


class WorkerEnded(Exception):
    """A worker died, and its successor too."""


class Worker:
    """Such a process, as the server sees it."""

    def __init__(self, runs: Mapping[str, Path], *, device: str, int8: bool, threads: int) -> None:
        how, where = [device, "int8" if int8 else "float32", str(threads)], [str(path) for path in runs.values()]
        self.command = [sys.executable, "-m", "regard.serve.worker", *how, *where]
        # the library that multiplies integers on Arm CPUs knows nothing of PyTorch's threads, but reads this
        self.environment = os.environ | ({"OMP_NUM_THREADS": str(threads)} if int8 else {})
        self.numbers = {name: number for number, name in enumerate(runs)}
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
            env=self.environment,
        )

    def translate(self, model: str, sentences: list[str], options: SearchOptions) -> Iterator[Ready]:
        """The translations of each sentence, by its number, as they become ready."""
        missing = dict(enumerate(sentences))
        for _ in range(ATTEMPTS):
            numbers, ended = list(missing), False  # a second time, those that the first left
            asked = {"model": self.numbers[model], "sentences": list(missing.values()), "options": asdict(options)}
            try:
                for line in self._ask(json.dumps(asked)):
                    answer = json.loads(line)
                    ended = answer is None or "error" in answer
                    if ended:
                        break
                    ready = [(numbers[at], [Translation(*one) for one in best]) for at, best in answer["ready"]]
                    for number, _best in ready:
                        del missing[number]
                    yield ready
            finally:
                if not ended:  # it died, or nobody listens any more: what it may yet say is no answer to the next
                    self._replace()
            if ended and answer is not None:
                raise RuntimeError(answer["error"])
            if not missing:
                return
        raise WorkerEnded

    def _ask(self, message: str) -> Iterator[str]:
        """What the process says, as long as it lives: whole lines."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(message + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return
        while (line := self.process.stdout.readline()).endswith("\n"):
            yield line

    def _replace(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def serve(device: str, numbers: str, threads: int, runs: list[str]) -> None:
    """The worker's side: answers until nobody asks."""
    import torch

    from regard import api

    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints does not belong to the answers
    torch.set_num_threads(threads)
    translators = [api.load(run, device=device, int8=numbers == "int8") for run in runs]
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        end: dict[str, str] | None = None
        try:
            translator = translators[asked["model"]]
            for ready in translator.each(asked["sentences"], options=SearchOptions(**asked["options"])):
                said = [[number, [[one.text, one.score] for one in best]] for number, best in ready]
                print(json.dumps({"ready": said}), file=answers)
        except Exception as error:
            end = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(end), file=answers)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
