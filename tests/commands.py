"""Commands in processes of their own, which are forked from one that has imported the package already.

Importing PyTorch takes longer than most commands do. A forked process has its own memory, streams, signals, working
directory and exit status, and ends as any Python process does. Tests of what happens at a start begin with
`sys.executable` instead.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import typer.main

from regard.process_end import end_process

# Processes that commands start: these are forked too, for commands in a shell and by `forking_python`.
MODULES = ("regard.learn.ablated_training", "regard.study.running.train_cell", "tests.distributed.worker")
PIPE_SIZE = 65536  # a pipe holds as many bytes without a reader


def regard(*arguments, cwd=None, text="", timeout=120, executable=None):
    """Run a command, with a pipe as its standard input, and return what it has printed and its exit status."""
    return _run(arguments, cwd=cwd, text=text, timeout=timeout, executable=executable)


def python(program, *, cwd=None, environment=None, timeout=120):
    """Run a program of Python, without input, and return what it has printed and its exit status."""
    return _run(program=program, cwd=cwd, environment=environment, timeout=timeout)


def _run(arguments=(), *, text="", timeout=120, **options):
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        content = text.encode()
        assert len(content) <= PIPE_SIZE, "a longer text would have to be written while the command runs"
        streams = {"stdin": subprocess.PIPE, "stdout": stdout, "stderr": stderr}
        process = Forked(arguments, **options, **streams)
        process.stdin.write(content)
        process.stdin.close()
        status = process.wait(timeout)
        printed = []
        for file in (stdout, stderr):
            file.seek(0)
            printed.append(file.read().decode())
    return subprocess.CompletedProcess(["regard", *arguments], status, *printed)


class Forked:
    """A running command, or program of Python. Its streams are files, `subprocess.PIPE`, or None: no input, no output.

    `executable` is the Python that it starts processes with, if not the usual one. `imported` are modules that are imported
    already, besides those of most commands.
    """

    def __init__(
        self,
        arguments,
        *,
        program=None,
        cwd=None,
        environment=None,
        executable=None,
        imported=(),
        stdin=None,
        stdout=None,
        stderr=None,
    ):
        request = {
            "program": program,
            "executable": executable or sys.executable,
            "arguments": list(map(str, arguments)),
            "cwd": str(cwd or Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
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
            sent = socket.send_fds(server(*imported), [line], [one.fileno() for one in (its, *streams)])
            server(*imported).sendall(line[sent:])
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


# The command `regard` for a shell: it asks the process that forks, passes signals on, and ends as the command does. As the
# interpreter of that command, it does the same for the modules in MODULES.
COMMAND = """#!{python} -SE
import json, os, signal, socket, sys
request = {{"arguments": sys.argv[1:], "cwd": os.getcwd(), "environment": dict(os.environ), "executable": {executable!r}}}
if __file__ == {executable!r}:
    if sys.argv[1:2] != ["-m"] or sys.argv[2] not in {modules}:
        os.execv({python!r}, [{python!r}, *sys.argv[1:]])
    request["module"] = sys.argv[2]
    del request["arguments"][:2]
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
line = json.dumps(request).encode() + b"\\n"
connection.sendall(line[socket.send_fds(connection, [line], [0, 1, 2]):])
answer = connection.makefile("r")
pid = int(answer.readline())
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(pid, number))
status = int(answer.readline())
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@functools.cache
def folder_of_command(*imported):
    """Return a folder with the command `regard`, for the PATH of a shell. `imported` is that of `Forked`."""
    folder = Path(tempfile.mkdtemp(prefix="regard-"))
    atexit.register(shutil.rmtree, folder)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "socket"))
    listening.listen()
    (folder / "bin").mkdir()
    executable, address = str(folder / "python"), str(folder / "socket")
    for path in (folder / "bin" / "regard", folder / "python"):
        path.write_text(COMMAND.format(python=sys.executable, executable=executable, modules=MODULES, address=address))
        path.chmod(0o755)
    threading.Thread(target=pass_on, args=[listening, imported], daemon=True).start()
    return folder / "bin"


def forking_python(*imported):
    """Return a Python that forks the modules in MODULES instead of importing them."""
    return str(folder_of_command(*imported).parent / "python")


def pass_on(listening, imported):
    """Pass requests on to the process that forks, which answers them."""
    while True:
        connection, _ = listening.accept()
        with connection:
            line, streams, _, _ = socket.recv_fds(connection, PIPE_SIZE, 3)
            while not line.endswith(b"\n"):
                line += connection.recv(PIPE_SIZE)
            sent = socket.send_fds(server(*imported), [line], [connection.fileno(), *streams])
            server(*imported).sendall(line[sent:])
        for stream in streams:
            os.close(stream)


@functools.cache
def server(*imported):
    """Return the connection to the process that forks, which ends when this one does."""
    ours, its = socket.socketpair()
    with its:
        command = [sys.executable, "-c", "from tests.commands import serve; serve()", str(its.fileno()), *imported]
        root = Path(__file__).resolve().parent.parent
        subprocess.Popen(
            command, cwd=root, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
    return ours


def serve():
    """Fork for each request, until there are no more. Runs in the process that forks."""
    # Commands import most of these when they need them.
    usual = ("torch", "rich.progress", "rich.table", "sacrebleu.metrics", "regard.api", "typer._adapters")
    for module in (*usual, *sys.argv[2:]):
        importlib.import_module(module)
    with suppress(ImportError):  # an extra
        importlib.import_module("matplotlib.pyplot")
    from regard.cli import main
    from regard.cli.commands import app

    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(app)  # all commands are made here, which takes a fifth of a second
    gc.freeze()
    request = next_request(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.executable = request["executable"]
    if "module" in request:
        sys.argv = [sys.argv[0], *request["arguments"]]
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    elif request.get("program") is not None:
        sys.argv = ["-c", *request["arguments"]]
        sys.path.insert(0, "")
        exec(compile(request["program"], "<snippet>", "exec"), {"__name__": "__main__"})
        sys.stdout.flush()
        end_process(0)
    else:
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
    # Tests that are run by nohup or in the background of a script inherit that these are ignored.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    return json.loads(line)
