"""Fake workers: real processes that return their input in capitals, and workers inside the test process."""

import json
import sys
import threading
from queue import Empty, SimpleQueue
from types import SimpleNamespace

from regard.serve.worker_process import WorkerCommand, WorkerFailed, WorkerProcess

UPPERCASE_WORKER = """
import json, os, sys, threading, time
from queue import SimpleQueue
tasks, cancelled, lock = SimpleQueue(), [], threading.Lock()
def send(message):
    with lock: print(json.dumps(message), flush=True)
def read():
    for line in sys.stdin:
        message = json.loads(line)
        cancelled.append(message["cancel"]) if "cancel" in message else tasks.put(message)
    os._exit(0)
def beat():
    while True:
        send({"beat": True}); time.sleep(0.1)
for loop in (read, beat): threading.Thread(target=loop, daemon=True).start()
if "unloadable" in sys.argv: sys.exit(1)
send({"loaded": True})
while True:
    task = tasks.get()
    end = None
    for number, text in enumerate(task["sentences"]):
        if "die" in text:
            with lock:
                print('{"id": 0, "ready": [[0, [["hal', end="", flush=True); os._exit(1)
        if text == "garbage": print("garbage", flush=True)
        if text == "error": end = {"kind": "error", "error": "ValueError", "text": "bad"}; break
        if text == "deaf":
            time.sleep(60)
        while text.startswith("long") and task["id"] not in cancelled: time.sleep(0.01)
        if task["id"] in cancelled:
            end = {"kind": "mistake", "error": "Cancelled", "text": "stopped"}; break
        send({"id": task["id"], "ready": [[number, [[text.upper(), float(os.getpid()), [], None]]]]})
    send({"id": task["id"], "end": end})
"""


def command(*arguments):
    return WorkerCommand([sys.executable, "-c", UPPERCASE_WORKER, *arguments], {})


def start_process():
    return WorkerProcess(command())


class InProcessWorker:
    """A worker without a process. It records its batches, and blocks while `resume` is not set."""

    def __init__(self):
        self.batches, self.cancelled, self.resume = [], [], threading.Event()
        self.resume.set()
        self.loaded = self.is_ready = True
        self.process = SimpleNamespace(pid=0)
        self._messages = SimpleQueue()

    def send(self, message):
        message = json.loads(json.dumps(message))
        if "cancel" in message:
            self.cancelled.append(message["cancel"])
            self._messages.put({"id": message["cancel"], "end": {"kind": "mistake", "error": "Cancelled", "text": ""}})
        else:
            threading.Thread(target=self._translate, args=(message,), daemon=True).start()

    def _translate(self, task):
        self.batches.append(task["sentences"])
        self.resume.wait(10)
        for number, text in enumerate(task["sentences"]):
            self._messages.put({"id": task["id"], "ready": [[number, [[text.upper(), 0.0, [], None]]]]})
        self._messages.put({"id": task["id"], "end": None})

    def wake(self):
        self._messages.put({})

    def receive(self, timeout):
        self.check()
        try:
            return self._messages.get(timeout=timeout)
        except Empty:
            return None

    def check(self):
        if not self.is_ready:
            raise WorkerFailed("fails in this test")

    def kill(self):
        pass

    close = kill
