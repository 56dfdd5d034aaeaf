"""Ten thousand clients that have said hello and are silent since: the memory of a name server stays small."""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil
import pytest

from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import encode_command

CONNECTIONS = 10_000
MAX_RSS_BYTES = 150_000_000
SPARE_FILES = 500
SOURCES = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"]  # one address may be short of free ports


@contextmanager
def many_files() -> Iterator[None]:
    """Let this process, and the server that it starts, open as many files as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CONNECTIONS + SPARE_FILES:
        pytest.fail(
            f"this test opens {CONNECTIONS} connections, but the system allows {hard} open files; "
            f"raise the hard limit (ulimit -Hn) to {CONNECTIONS + SPARE_FILES} or more"
        )
    wanted = CONNECTIONS + SPARE_FILES if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def name_server(home: Path) -> Iterator[tuple[psutil.Process, int]]:
    """`cometmq namesrv` as a process of its own, and its port."""
    command = [
        str(Path(sys.executable).with_name("cometmq")),
        "namesrv",
        "--port",
        "0",
        "--bind",
        "127.0.0.1",
    ]
    process = subprocess.Popen(
        [*command, "--json", "--log-level", "error"], stdout=subprocess.PIPE, env={"HOME": str(home)}
    )
    assert process.stdout is not None
    try:
        ready = msgspec.json.decode(process.stdout.readline())
        yield psutil.Process(process.pid), ready["port"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def connect(port: int, number: int) -> socket.socket:
    sock = socket.socket()
    sock.settimeout(10)
    sock.bind((SOURCES[number % len(SOURCES)], 0))
    sock.connect(("127.0.0.1", port))
    return sock


def ask(sock: socket.socket, opaque: int) -> None:
    """One request and its answer, which fits one read."""
    sock.sendall(encode_command(RequestCode.GET_BROKER_CLUSTER_INFO, opaque, 0))
    assert f'"opaque":{opaque},'.encode() in sock.recv(4096)


def test_ten_thousand_idle_connections_stay_under_150_megabytes(
    tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    sockets: list[socket.socket] = []
    with many_files(), name_server(tmp_path) as (process, port):
        try:
            empty_bytes = process.memory_info().rss
            for number in range(CONNECTIONS):
                sockets.append(connect(port, number))
                ask(sockets[-1], number)
            rss_bytes = process.memory_info().rss
            for number in range(0, CONNECTIONS, 100):  # they all live, the first ones as well
                ask(sockets[number], number)
        finally:
            for sock in sockets:
                sock.close()
    figures = f"{rss_bytes / 1e6:.1f} MB with {CONNECTIONS} connections, {empty_bytes / 1e6:.1f} MB without"
    record_testsuite_property("resident memory of the name server", figures)
    print(figures)
    assert rss_bytes < MAX_RSS_BYTES, figures
