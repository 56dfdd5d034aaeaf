"""A program that takes functions of Linux away, and then uses an embedded broker as somebody would there.

    python other_system.py FOLDER macos|windows|NAME…

A NAME is a function of `os`, a module, a function of the C library, `signals`, or `port`. What another
system does instead is imitated: Windows removes no mapped file, syncs no file that is not open for writing,
and opens no folder.
"""

from __future__ import annotations

import asyncio
import asyncio.unix_events
import builtins
import concurrent.futures.thread  # everything that looks at the system is imported before it changes
import ctypes
import errno
import fcntl
import logging
import logging.handlers
import mmap
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

OF_OS: Final = (
    "fdatasync",
    "posix_fallocate",
    "posix_fadvise",
    "register_at_fork",
    "pread",
    "preadv",
    "pwrite",
    "writev",
    "fstatvfs",
    "sysconf",
    "SEEK_DATA",
    "SEEK_HOLE",
    "sched_getaffinity",
)
MODULES: Final = ("resource", "uvloop", "fcntl")
OF_LIBC: Final = ("mmap", "msync", "mincore", "madvise", "fstatfs")
NAMES: Final = (*OF_OS, *MODULES, *OF_LIBC, "MADV_RANDOM", "signals", "port")
NOT_ON_MACOS: Final = ("fdatasync", "posix_fallocate", "posix_fadvise", "madvise", "fstatfs", "port")

MESSAGES: Final = 40
LOCKED: Final = 7
LOCK: Final = f"""
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit({LOCKED})
"""
"""What another process does."""

full_syncs: list[int] = []


def hide(name: str) -> None:
    if name in OF_OS:
        delattr(os, name)
    elif name == "MADV_RANDOM":
        del mmap.MADV_RANDOM
    elif name == "signals":
        asyncio.unix_events.SelectorEventLoop.add_signal_handler = _not_implemented  # type: ignore[assignment,method-assign]
        sys.modules["uvloop"] = None  # type: ignore[assignment]
    elif name == "fcntl":
        sys.modules["fcntl"] = None  # type: ignore[assignment]
        sys.modules["msvcrt"] = _MsvcRuntime("msvcrt")
    elif name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    elif name in OF_LIBC:
        ctypes.CDLL.__getitem__ = _without(name, ctypes.CDLL.__getitem__)  # type: ignore[method-assign]
    elif name == "port":
        sys.platform = "another"
        socket.socket.bind = _bind_once(socket.socket.bind)  # type: ignore[assignment,method-assign]
    else:
        raise SystemExit(f"{name} is not one of {', '.join(NAMES)}")


def _not_implemented(*_: object) -> None:
    raise NotImplementedError


def _without(hidden: str, find: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def found(library: Any, name: Any) -> Any:
        if name == hidden:
            raise AttributeError(name)
        return find(library, name)

    return found


class _MsvcRuntime(types.ModuleType):
    """Locks as Windows has them."""

    LK_NBLCK = 2

    @staticmethod
    def locking(handle: int, mode: int, size: int) -> None:
        assert (mode, size, os.lseek(handle, 0, os.SEEK_CUR)) == (2, 1, 0)
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, size)


_bound: dict[object, socket.socket] = {}


def _bind_once(bind: Callable[[socket.socket, Any], None]) -> Callable[[socket.socket, Any], None]:
    def bound(sock: socket.socket, address: Any) -> None:
        before = _bound.get(address)
        if before is not None and before.fileno() >= 0:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        bind(sock, address)
        _bound[sock.getsockname()] = sock

    return bound


def become_macos() -> None:
    for name in NOT_ON_MACOS:
        hide(name)
    fcntl.F_FULLFSYNC = 51  # type: ignore[attr-defined]
    control = fcntl.fcntl

    def with_full_sync(handle: int, command: int, *argument: Any) -> Any:
        if command == 51:
            full_syncs.append(handle)
            return os.fsync(handle)
        return control(handle, command, *argument)

    fcntl.fcntl = with_full_sync  # type: ignore[assignment]


def become_windows() -> None:
    """Hide everything, and have the package find the name of the system."""
    control, get_flags = fcntl.fcntl, fcntl.F_GETFL
    sync, open_, unlink = os.fsync, os.open, os.unlink
    os.O_BINARY = 1 << 30  # type: ignore[attr-defined]

    def sync_writable(handle: int) -> None:
        if control(handle, get_flags) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        sync(handle)

    def open_file(path: Any, flags: int, *others: Any, **named: Any) -> int:
        if os.path.isdir(path) and str(path) not in removing:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        if flags & os.O_BINARY == 0 and Path(str(path)).parent.name.isdecimal():  # type: ignore[attr-defined]
            raise AssertionError(f"{path} is opened as text")
        return open_(path, flags & ~os.O_BINARY, *others, **named)  # type: ignore[attr-defined]

    removing: set[str] = set()

    def unlink_unmapped(path: Any, **named: Any) -> None:
        with builtins.open("/proc/self/maps") as maps:
            if any(line.rstrip().endswith(str(path)) for line in maps):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        unlink(path, **named)

    os.fsync, os.open, os.unlink = sync_writable, open_file, unlink_unmapped  # type: ignore[assignment]
    shutil.rmtree = lambda path, **_: subprocess.run(["rm", "-r", str(path)], check=True)  # type: ignore[assignment]
    for name in NAMES:
        hide(name)
    name, os.name = os.name, "nt"
    import cometmq.ports.system

    os.name = name
    assert cometmq.ports.system.IS_WINDOWS


def use(folder: Path) -> None:
    """Send, consume, delete, stop and open again; the store is locked meanwhile."""
    from cometmq import Message, Producer, PushConsumer
    from cometmq.testing import EmbeddedBroker

    bodies = {os.urandom(30_000) for _ in range(MESSAGES)}
    settings = {"flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": "500000", "fileReservedTime": "0"}
    settings |= {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
    with EmbeddedBroker(folder, settings=settings) as rocketmq:
        lock = str(rocketmq.folder / "lock")
        assert subprocess.run([sys.executable, "-c", LOCK, lock], check=False).returncode == LOCKED
        with Producer("senders", namesrv=rocketmq.namesrv) as producer:
            messages = [Message("Orders", body) for body in bodies]
            for at in range(0, MESSAGES, 4):
                producer.send_batch(messages[at : at + 4])
        assert consumed(rocketmq.namesrv, "first", PushConsumer) == bodies
    with EmbeddedBroker(folder, settings=settings) as rocketmq:
        assert consumed(rocketmq.namesrv, "second", PushConsumer) == bodies
        assert len(list((rocketmq.folder / "commitlog").iterdir())) >= 3
        rocketmq.call(delete_expired(rocketmq.broker.context.store))
        assert not (rocketmq.folder / "commitlog" / ("0" * 20)).exists()
    with EmbeddedBroker(folder, settings=settings) as rocketmq:
        assert consumed(rocketmq.namesrv, "third", PushConsumer, wanted=1) < bodies


async def delete_expired(store: Any) -> None:
    store.delete_expired()
    await store.retention.run()


def consumed(namesrv: str, group: str, kind: Any, wanted: int = MESSAGES) -> set[bytes]:
    found: set[bytes] = set()
    enough = threading.Event()
    consumer = kind(group, namesrv=namesrv, consume_from_where="earliest")

    @consumer.subscribe("Orders")  # type: ignore[untyped-decorator]
    def take(message: Any) -> None:
        found.add(message.body)
        if len(found) >= wanted:
            enough.set()

    with consumer:
        assert enough.wait(60), f"{len(found)} messages came"
    return found


async def wait_for_a_signal() -> None:
    from cometmq.ports.stop_signals import STOP_SIGNALS, on_signals

    came = asyncio.Event()
    with on_signals(came.set, *STOP_SIGNALS):
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        await asyncio.wait_for(came.wait(), 60)


def main() -> None:
    _ = concurrent.futures.thread, logging.handlers, multiprocessing, pathlib, random, ssl, tempfile
    folder, *names = sys.argv[1:]
    if names == ["macos"]:
        become_macos()
    elif names == ["windows"]:
        become_windows()
    else:
        for name in names:
            hide(name)
    from cometmq.remoting.loop import run

    run(wait_for_a_signal())
    use(Path(folder))
    assert names != ["macos"] or full_syncs, "macOS puts nothing on the disk without F_FULLFSYNC"
    print("ok")


if __name__ == "__main__":
    main()
