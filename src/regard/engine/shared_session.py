"""One session of the engine for all searches of a model, also of several threads at once.

The threads of the engine then always work on all sentences that there are: those of a new search join the batches of the
others at the next step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue

from regard.decoding.hypothesis import Check
from regard.engine.model import EngineModel
from regard.engine.session import WAIT, Found, Session
from regard.errors import DecodeError

MOST_ROWS = 128  # of the batch of a thread

Ended = tuple[int, list[Found] | None]  # a ticket and the outputs of its sentence; None: there was no memory
Results = SimpleQueue[Ended | None]  # of one search; None wakes it, so that it waits for the session itself


class SharedSession:
    """A session whose results go to the searches that asked for them. Its threads start with the first search."""

    def __init__(self, model: EngineModel, *, threads: int, tokens: int) -> None:
        self.model, self.threads, self.tokens = model, threads, tokens
        self._session: Session | None = None
        self._lock = threading.Lock()
        self._waits = threading.Lock()  # held by the one search that waits for the session
        self._owners: dict[int, Results] = {}  # by ticket
        self.users = 0  # searches that have not ended; whoever takes the session counts

    def search(self, additions: Iterable[Callable[[Session], int]], check: Check) -> Iterator[tuple[int, list[Found]]]:
        """Yield the outputs of sentences as they end, with the place of each among `additions`.

        An addition adds a sentence to the session and returns its ticket; it is called before the next one is asked for.
        Sentences that have not ended when the caller stops, or `check` raises, are cancelled.
        """
        results: Results = SimpleQueue()
        places: dict[int, int] = {}
        session = self._begin()
        try:
            for place, add in enumerate(additions):
                with self._lock:  # so that its result cannot come before its owner is known
                    ticket = add(session)
                    self._owners[ticket] = results
                places[ticket] = place
            while places:
                check()
                ended = self._wait(session, results)
                if ended is None:
                    continue
                place, found = places.pop(ended[0]), ended[1]
                if found is None:
                    raise DecodeError("there is no memory for this search; use a smaller beam, or shorter sentences")
                self._wake_another()  # while the caller is busy with this result
                yield place, found
        finally:
            if session.in_this_process:  # in a child of `fork` the locks may stay held
                with self._lock:
                    for ticket in places:
                        self._owners.pop(ticket, None)
                for ticket in places:
                    session.cancel(ticket)
                self._wake_another()

    def _begin(self) -> Session:
        with self._lock:
            if self._session is None:
                self._session = Session(self.model, threads=self.threads, rows=MOST_ROWS, tokens=self.tokens)
            return self._session

    def _wait(self, session: Session, results: Results) -> Ended | None:
        """Return a result of this search, or None after a while."""
        try:
            return results.get_nowait()
        except Empty:
            pass
        if not self._waits.acquire(blocking=False):
            try:
                return results.get(timeout=WAIT / 1000)
            except Empty:
                return None
        try:
            if not results.empty():  # it came since the first look
                return results.get_nowait()
            ended = session.next()
            if ended is None:
                return None
            with self._lock:
                owner = self._owners.pop(ended[0], None)
            if owner is results:
                return ended
            if owner is not None:  # None: it was cancelled when it had just ended
                owner.put(ended)
            return None
        finally:
            self._waits.release()

    def _wake_another(self) -> None:
        """Let another search wait for the session, if none does."""
        if self._waits.locked():
            return
        with self._lock:
            other = next(iter(self._owners.values()), None)
        if other is not None:
            other.put(None)

    def close(self) -> None:
        """End the engine's threads. Not while a search runs."""
        if self._session is not None:
            self._session.close()
