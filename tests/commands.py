"""Commands in processes of their own, which are forked from one that has imported the package already.

Importing PyTorch takes longer than most commands do. A forked process has its own memory, streams, signals, working
directory and exit status, and ends as any Python process does. Tests of what happens at a start begin with
`sys.executable` instead.
"""

import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

PIPE_SIZE = 65536  # a pipe holds as many bytes without a reader


def regard(*arguments, cwd=None, text="", timeout=120):
    """Run a command, with a pipe as its standard input, and return what it has printed and its exit status."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        content = text.encode()
        assert len(content) <= PIPE_SIZE, "a longer text would have to be written while the command runs"
        process = Forked(arguments, cwd=cwd, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr)
        process.stdin.write(content)
        process.stdin.close()
        status = process.wait(timeout)
        printed = []
        for file in (stdout, stderr):
            file.seek(0)
            printed.append(file.read().decode())
    return subprocess.CompletedProcess(["regard", *arguments], status, *printed)


class Forked:
    """A running command. Its streams are files, or `subprocess.PIPE`, or None for no input and no output."""

    def __init__(self, arguments, *, cwd=None, stdin=None, stdout=None, stderr=None):
        request = {
            "arguments": list(map(str, arguments)),
            "cwd": str(cwd or Path.cwd()),
            "environment": dict(os.environ),
        }
        line = json.dumps(request).encode() + b"\n"
        with ExitStack() as stack:
            null = stack.enter_context(open(os.devnull, "r+b"))
            streams = []
            self.stdin = self.stdout = self.stderr = None
            for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
                if stream is subprocess.PIPE:
                    reading, writing = os.pipe()
                    its, ours = (reading, writing) if name == "stdin" else (writing, reading)
                    stream = stack.enter_context(open(its, "rb" if name == "stdin" else "wb"))
                    setattr(self, name, open(ours, "wb", buffering=0) if name == "stdin" else open(ours))  # noqa: SIM115
                streams.append(null if stream is None else stream)
            self._connection, its = socket.socketpair()
            stack.enter_context(its)
            sent = socket.send_fds(server(), [line], [one.fileno() for one in (its, *streams)])
            server().sendall(line[sent:])
        self._answer = self._connection.makefile("r")
        self.pid = int(self._answer.readline())

    def send_signal(self, number):
        os.kill(self.pid, number)

    def wait(self, timeout=120):
        """Return the exit status. The process is killed if it has not ended in time."""
        self._connection.settimeout(timeout)
        try:
            return int(self._answer.readline())
        except TimeoutError:
            self.send_signal(signal.SIGKILL)
            raise


@functools.cache
def server():
    """Return the connection to the process that forks, which ends when this one does."""
    ours, its = socket.socketpair()
    with its:
        command = [sys.executable, "-c", "from tests.commands import serve; serve()", str(its.fileno())]
        root = Path(__file__).resolve().parent.parent
        subprocess.Popen(
            command, cwd=root, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
    return ours


def serve():
    """Fork for each request, until there are no more. Runs in the process that forks."""
    # Commands import most of these when they need them.
    for module in ("torch", "rich.progress", "rich.table", "sacrebleu.metrics", "regard.api"):
        importlib.import_module(module)
    from regard.cli import main

    gc.freeze()
    request = next_request(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["regard", *request["arguments"]]
    main()


def next_request(control):
    """Return each request in a process of its own, which has a parent that reports its id and its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        line, descriptors, _, _ = socket.recv_fds(control, PIPE_SIZE, 4)
        if not line:
            os._exit(0)
        while not line.endswith(b"\n"):
            line += control.recv(PIPE_SIZE)
        if os.fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
    control.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    answer, *streams = descriptors
    pid = os.fork()
    if pid:
        for descriptor in (0, 1, 2, *streams):
            os.close(descriptor)
        os.write(answer, b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(answer, b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.close(answer)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    return json.loads(line)
