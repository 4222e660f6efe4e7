"""Run by test_portability: hides from regard what Windows does not have, then imports, translates, trains and resumes.

python without_unix.py FOLDER
"""

import builtins
import importlib.util
import os
import pkgutil
import shutil
import signal
import sys
from importlib import import_module

import torch  # noqa: F401  the libraries below us may use what their system has
from sentencepiece import SentencePieceProcessor  # noqa: F401

MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix", "curses", "readline"}
OF_OS = [
    *("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC", "set_blocking", "fwalk", "fork", "forkpty", "getuid"),
    *("geteuid", "getgid", "getpgid", "killpg", "setsid", "preadv", "pread", "posix_fadvise", "sysconf", "statvfs"),
    *("sched_getaffinity", "nice", "uname", "getloadavg", "mkfifo", "fchmod", "fchown", "chown", "wait4"),
]
OF_SIGNAL = ["SIGHUP", "SIGKILL", "SIGSTOP", "SIGUSR1", "SIGALRM", "setitimer", "pthread_sigmask", "pause"]

real_import, real_find_spec, real_open, real_listdir = (
    *(builtins.__import__, importlib.util.find_spec, os.open, os.listdir),
)


def import_hiding(name, globals=None, *more, **options):
    if name.partition(".")[0] in MODULES and globals and str(globals.get("__name__")).startswith("regard"):
        raise ModuleNotFoundError(f"hidden: {name}", name=name)
    return real_import(name, globals, *more, **options)


def open_hiding(path, flags, mode=0o777, **more):
    if more.get("dir_fd") is not None:
        raise NotImplementedError("dir_fd")
    if os.path.isdir(path):
        raise PermissionError(13, "a directory")
    return real_open(path, flags, mode)


def listdir_hiding(path="."):
    if isinstance(path, int):
        raise TypeError("a descriptor")
    return real_listdir(path)


builtins.__import__ = import_hiding
importlib.util.find_spec = lambda name, *more: None if name in MODULES else real_find_spec(name, *more)
os.open, os.listdir = open_hiding, listdir_hiding
os.supports_dir_fd, os.supports_fd = set(), set()
shutil._use_fd_functions = False
for module, names in ((os, OF_OS), (signal, OF_SIGNAL)):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

import regard  # noqa: E402
from regard.errors import MissingExtra  # noqa: E402
from regard.run.folder import RunFolder  # noqa: E402
from regard.storage.directory import PathDirectory, open_directory  # noqa: E402

imported = 0
for module in pkgutil.walk_packages(regard.__path__, "regard."):
    if module.name in ("regard.__main__", "regard.engine.libregard"):  # the latter is opened by ctypes
        continue
    try:
        import_module(module.name)
        imported += 1
    except MissingExtra:
        pass
    except ModuleNotFoundError as error:
        # An extra that is not installed, or Triton, which only GPUs have.
        if error.name is None or error.name.partition(".")[0] in MODULES | {"regard"}:
            raise
print("imported", imported)

folder = sys.argv[1]
with open_directory(folder) as opened:
    assert type(opened) is PathDirectory
print("translated", regard.load("de-en").predict(["Ein Mann schläft ."])[0])
options = [
    *("model.width=16", "model.num_layers=1", "model.hidden=16", "train.tokens=256", "train.steps=6"),
    *("train.checkpoint_every=2", "train.validate_pairs=4", "train.threads=1", "train.device=cpu"),
]
run, calls = os.path.join(folder, "run"), iter(range(100))
regard.train("copy", out=run, overrides=options, listen=lambda event: None, stop=lambda: next(calls) > 3)
assert not RunFolder(run).finished
assert regard.train("copy", out=run, overrides=options, listen=lambda event: None).finished
regard.card(run, evaluated=False)
regard.export(run, os.path.join(folder, "exported"), weights="int8")
assert RunFolder(run).problems() == []
print("trained", len(regard.load(os.path.join(folder, "exported")).predict(["a b c"])))
