"""Start-up time and idle memory of a server process.

Rules kept here: a server is ready when it answers a request, whatever its log says. Memory is that of the
process and its children. A server may have files of an earlier run, which its start then reads.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import psutil

from bench.errors import BenchmarkError
from bench.load.frames import Caller
from tests.compat.apache import Server

Question = tuple[tuple[str, int], bytes]
"""Whom to ask, and what."""


READY_SECONDS = 120.0
STOP_SECONDS = 300.0


def start_once(server: Server, questions: Sequence[Question]) -> tuple[float, float]:
    """Seconds from the start of the process until all is answered, and its idle memory in megabytes."""
    try:
        return start(server, questions), resident_mb(server.pid)
    finally:
        server.kill()


def start(server: Server, questions: Sequence[Question]) -> float:
    """Start a server and leave it running; seconds from the start of the process until all is answered."""
    server.command()  # compiles what has to be compiled once, which is no part of a start
    gone = threading.Event()
    with ThreadPoolExecutor(1) as watcher:
        begun = time.perf_counter()
        answered = watcher.submit(_all_answered, questions, gone)
        try:
            server.start()
            return answered.result(timeout=READY_SECONDS) - begun
        finally:
            gone.set()


def stop(server: Server) -> None:
    """Stop a server orderly, however long it takes to write what it has."""
    os.kill(server.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while server.is_running:
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{server!r} did not stop in {STOP_SECONDS:g} s")
        time.sleep(0.05)
    server.kill()  # it is gone; this tells the object so


def _all_answered(questions: Sequence[Question], gone: threading.Event) -> float:
    """Ask each until there is an answer, and tell when the last one came."""
    for address, frame in questions:
        while not _is_answered(address, frame):
            if gone.wait(0.002):
                raise BenchmarkError("the server was gone before it answered")
    return time.perf_counter()


def _is_answered(address: tuple[str, int], frame: bytes) -> bool:
    try:
        with Caller(address) as caller:
            caller.ask(frame)
            return True
    except OSError:
        return False  # not listening yet


def resident_mb(pid: int) -> float:
    process = psutil.Process(pid)
    family = (process, *process.children(recursive=True))
    return sum(int(one.memory_info().rss) for one in family) / 1e6
