"""Locks on open files, which end with the process that holds them. The only module that knows how a system locks.

Linux and macOS lock a file as such (`fcntl`), and Windows locks some of its bytes (`msvcrt`). A system with neither cannot
lock, and the user has to ensure that one process at a time writes.
"""

from __future__ import annotations

import errno
import os
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None
msvcrt: Any = import_module("msvcrt") if find_spec("msvcrt") else None
PAUSE = 0.05  # seconds between two attempts to lock bytes
# Error numbers of a lock that another process holds: of flock, of network file systems, and of Windows.
HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)


def try_lock(descriptor: int, *, byte: int = 0) -> bool:
    """Lock an open file; return False if another process holds the lock. Raise OSError if the file cannot be locked.

    `byte` tells locks apart where bytes are locked.
    """
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif msvcrt is not None:
            os.lseek(descriptor, byte, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError as error:
        if error.errno not in HELD:
            raise
        return False
    return True


def wait_for_lock(descriptor: int, *, byte: int = 0) -> None:
    """Lock an open file, and wait while another process holds the lock. Raise OSError if the file cannot be locked."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    while not try_lock(descriptor, byte=byte):
        time.sleep(PAUSE)
