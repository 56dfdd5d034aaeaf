"""`cometmq namesrv` as a process of its own: start, ready line, signals, crash (N2, N8)."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cometmq.wire.frame.command import Command, decode_command, encode_command
from cometmq.wire.frame.framing import FrameSplitter

READY_S = 30.0
STOP_S = 2.0
END_S = 20.0
LEAN = ("rich", "cryptography", "prometheus_client", "urllib.request", "http.client")


class Process:
    """One name server; its home folder is `home`."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        environment = {key: value for key, value in os.environ.items() if not key.startswith("COMETMQ_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cometmq.cli.main", "namesrv", "--bind", "127.0.0.1", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment, "HOME": str(home)},
        )

    def ready_line(self) -> str:
        out = self._process.stdout
        assert out is not None
        readable, _, _ = select.select([out], [], [], READY_S)
        assert readable, f"nothing was said within {READY_S:g} s"
        return out.readline().decode()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self, timeout_s: float = END_S) -> tuple[int, str]:
        """Wait for the end: exit code and standard error."""
        _, err = self._process.communicate(timeout=timeout_s)
        return self._process.returncode, err.decode()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    processes: list[Process] = []

    def start_one(*arguments: str) -> Process:
        processes.append(Process(tmp_path, *arguments))
        return processes[-1]

    yield start_one
    for process in processes:
        process.kill()


def port_of(line: str) -> int:
    match = re.search(r":(\d+)$", line.strip())
    assert match is not None, line
    return int(match.group(1))


def ask(port: int, code: int, **fields: str) -> Command:
    splitter = FrameSplitter()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(encode_command(code, 1, 0, fields))
        while (frame := splitter.next_frame()) is None:
            data = connection.recv(65_536)
            assert data, "the server closed the connection"
            splitter.feed(data)
        return decode_command(frame)


def test_a_start_has_three_visible_steps_and_says_when_it_is_ready(start: Start) -> None:
    """N2: configuration, build, start; then Apache's own line on standard output."""
    process = start("--port", "0", "--set", "orderMessageEnable=true")
    line = process.ready_line()
    assert line.startswith("The Name Server boot success. serializeType=JSON, address 127.0.0.1:")
    assert ask(port_of(line), 106).code == 0
    process.signal(signal.SIGTERM)
    code, err = process.end()
    assert code == 0
    steps = re.findall(r"step (\d) of 3, (\w+): (.*)", err)
    assert [(number, what) for number, what, _ in steps] == [
        ("1", "configuration"),
        ("2", "build"),
        ("3", "start"),
    ]
    assert steps[0][2] == "3 from flag"
    assert err.rstrip().endswith("stopped")


def test_the_ready_line_as_json(start: Start) -> None:
    """N2: for programs that start it."""
    process = start("--port", "0", "--json")
    ready = json.loads(process.ready_line())
    assert ready["event"] == "ready"
    assert ask(ready["port"], 106).code == 0
    os.kill(ready["pid"], signal.SIGTERM)
    assert process.end()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order_within_two_seconds(start: Start, number: int) -> None:
    """N2: the shutdown hook closes everything, also with clients connected."""
    process = start("--port", "0")
    port = port_of(process.ready_line())
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        assert ask(port, 106).code == 0
        began = time.monotonic()
        process.signal(number)
        assert client.recv(1) == b"", "the connection is closed"
        client.close()
        code, err = process.end()
    assert code == 0
    assert time.monotonic() - began < STOP_S
    assert "Traceback" not in err
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "nobody listens any more"


def test_key_values_survive_a_kill_at_once_after_the_answer(start: Start, tmp_path: Path) -> None:
    """N8: an answered change is on disk, in the home folder."""
    process = start("--port", "0")
    port = port_of(process.ready_line())
    assert ask(port, 100, namespace="NS", key="k", value="v").code == 0
    process.kill()
    assert (tmp_path / "namesrv" / "kvConfig.json").read_bytes() == b'{"configTable":{"NS":{"k":"v"}}}'
    again = start("--port", "0")
    answer = ask(port_of(again.ready_line()), 101, namespace="NS", key="k")
    assert answer.fields() == {"value": "v"}


def test_settings_changed_by_request_are_in_force_after_a_restart_with_the_file(
    start: Start, tmp_path: Path
) -> None:
    """N2, N9: the file that was given is the one that is rewritten."""
    config = tmp_path / "ns.conf"
    config.write_text("listenPort=0\n")
    process = start("-c", str(config))
    port = port_of(process.ready_line())
    change = b"orderMessageEnable=true\n"
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(encode_command(318, 1, 0, body=change))
        assert connection.recv(4)
    process.kill()
    assert "orderMessageEnable=true\n" in config.read_text()
    assert (tmp_path / "ns.conf.bak").read_text() == "listenPort=0\n"
    again = start("-c", str(config))
    shown = bytes(ask(port_of(again.ready_line()), 319).body).decode()
    assert "orderMessageEnable=true\n" in shown
    assert f"configStorePath={config}\n" in shown


def test_a_port_in_use_is_one_line_and_exit_code_1(start: Start) -> None:
    """N2: no trace."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, err = start("--port", str(port), "--log-level", "error").end(READY_S)
    assert code == 1
    assert re.fullmatch(
        rf"error: cannot listen on 127\.0\.0\.1:{port}: .*address already in use.*; "
        r"stop what uses the port, or choose another listenPort\n",
        err,
        re.IGNORECASE,
    )


def test_a_broken_key_value_file_is_one_line_and_exit_code_1(start: Start, tmp_path: Path) -> None:
    """N2, N8: with the way out."""
    (tmp_path / "namesrv").mkdir()
    (tmp_path / "namesrv" / "kvConfig.json").write_text("{broken")
    code, err = start("--port", "0", "--log-level", "error").end(READY_S)
    assert code == 1
    assert re.fullmatch(r"error: .*kvConfig\.json cannot be read: .*; repair it, or restore its \.bak\n", err)


def test_the_start_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    """N2: a name server is ready in a moment because little is imported."""
    program = (
        "import sys, cometmq.cli.main\n"
        "from cometmq.namesrv.service import Namesrv\n"
        "from cometmq.namesrv.config import NamesrvConfig\n"
        f"Namesrv(NamesrvConfig(kv_config_path={str(tmp_path / 'kv')!r}, config_store_path='x'))\n"
        f"print([name for name in {LEAN!r} if name in sys.modules])\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
