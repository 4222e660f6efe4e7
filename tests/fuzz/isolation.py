"""Isolation of a process: a mount namespace in which only one folder is writable, and a memory limit."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_READ_ONLY, _NO_SUID, _NO_DEV, _NO_EXEC, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE, _STRICT_ATIME = (
    0x1, 0x2, 0x4, 0x8, 0x20, 0x1000, 0x4000, 0x40000, 0x1000000,
)  # fmt: skip
_LOCKED = {"nosuid": _NO_SUID, "nodev": _NO_DEV, "noexec": _NO_EXEC, "noatime": 0x400, "relatime": 0x200000}
SPACE = "size=1g"


def isolate(folder: Path) -> str:
    """Mount an empty file system on `folder` and make all others read-only; return an error message, or ""."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str) -> None:
        if result:
            raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")

    def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
        names = [None if name is None else name.encode() for name in (source, target, kind, options)]
        check(libc.mount(names[0], names[1], names[2], ctypes.c_ulong(flags), names[3]), f"mount {target}")

    try:
        if os.geteuid() == 0:
            check(libc.unshare(_NEW_MOUNTS), "unshare")
        else:
            user, group = os.getuid(), os.getgid()
            check(libc.unshare(_NEW_MOUNTS | _NEW_USER), "unshare")
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {user} 1")
            Path("/proc/self/gid_map").write_text(f"0 {group} 1")
        mount("none", "/", None, _RECURSIVE | _PRIVATE)
        for point, flags in _mounts():
            mount("none", point, None, _REMOUNT | _BIND | _READ_ONLY | flags)
        mount("tmpfs", str(folder), "tmpfs", _STRICT_ATIME, SPACE)
    except OSError as error:
        return str(error)
    return ""


def _mounts() -> list[tuple[str, int]]:
    """Return all mount points and the flags that a remount must keep."""
    points = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, _, options, *_ = line.split()
        flags = sum(_LOCKED.get(option, 0) for option in options.split(","))
        points.append((point.encode().decode("unicode_escape"), flags))
    return points


def limit_memory(room: int) -> None:
    """Limit the address space of this process to what it uses now plus `room` bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class MemoryWatch:
    """The resident memory of this process: current, and peak since the last reset."""

    def __init__(self) -> None:
        self._status = os.open("/proc/self/status", os.O_RDONLY)
        try:
            self._reset: int | None = os.open("/proc/self/clear_refs", os.O_WRONLY)
        except OSError:
            self._reset = None

    def now(self) -> int:
        return self._read(b"VmRSS:")

    def peak(self) -> int:
        return self._read(b"VmHWM:")

    def reset(self) -> None:
        if self._reset is not None:
            os.pwrite(self._reset, b"5", 0)

    def _read(self, name: bytes) -> int:
        content = os.pread(self._status, 10_000, 0)
        return int(content.partition(name)[2].split(maxsplit=1)[0]) * 1024
