"""A process that translates for the server, so that Python's lock is not shared with it.

python -m regard.serve.worker DEVICE THREADS RUN...    a JSON object a line in, one out

It ends when its input does, and not by signals: what the server has accepted is finished.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.decoding.hypotheses import SearchOptions
from regard.decoding.translator import Translation

ATTEMPTS = 2  # a worker that dies is started anew, and told again


class WorkerEnded(Exception):
    """A worker died, and its successor too."""


class Worker:
    """Such a process, as the server sees it."""

    def __init__(self, runs: Mapping[str, Path], *, device: str, threads: int) -> None:
        where = [str(path) for path in runs.values()]
        self.command = [sys.executable, "-m", "regard.serve.worker", device, str(threads), *where]
        self.numbers = {name: number for number, name in enumerate(runs)}
        self.lock = threading.Lock()
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )

    def translate(self, model: str, sentences: list[str], options: SearchOptions) -> list[list[Translation]]:
        """The translations of each sentence."""
        message = json.dumps({"model": self.numbers[model], "sentences": sentences, "options": asdict(options)})
        with self.lock:
            for _ in range(ATTEMPTS):
                if answer := self._ask(message):
                    found = json.loads(answer)
                    if "error" in found:
                        raise RuntimeError(found["error"])
                    return [[Translation(text, score) for text, score in one] for one in found["found"]]
                self.process.kill()
                self.process.wait()
                self.process = self._start()
        raise WorkerEnded

    def _ask(self, message: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(message + "\n")
            self.process.stdin.flush()
            return self.process.stdout.readline()
        except BrokenPipeError:
            return ""

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def serve(device: str, threads: int, runs: list[str]) -> None:
    """The worker's side: answers until nobody asks."""
    import torch

    from regard import api

    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints does not belong to the answers
    torch.set_num_threads(threads)
    translators = [api.load(run, device=device) for run in runs]
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        try:
            found = translators[asked["model"]].stream(asked["sentences"], options=SearchOptions(**asked["options"]))
            answer: dict[str, Any] = {"found": [[[one.text, one.score] for one in best] for best in found]}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
