"""`cometmq namesrv -p`: what is in force, where it came from, and what is wrong with it (N2)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from cometmq._version import __version__
from cometmq.cli.main import main


class Ended(NamedTuple):
    code: int | str | None
    out: str
    err: str


Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]


class Command:
    """Runs `cometmq` in this process, with a home folder of its own."""

    def __init__(self, home: Path, monkeypatch: Patch, capsys: Capture) -> None:
        self.home = home
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.delenv("ROCKETMQ_HOME", raising=False)

    def __call__(self, *arguments: str, **variables: str) -> Ended:
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)
        self._monkeypatch.setattr(sys, "argv", ["cometmq", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return Ended(ended.value.code, *self._capsys.readouterr())

    def settings(self, *arguments: str, **variables: str) -> dict[str, tuple[str, str]]:
        """Value and origin of every setting."""
        ended = self("namesrv", "-p", "--json", *arguments, **variables)
        assert ended.code == 0, ended.err
        return {key: (row["value"], row["origin"]) for key, row in json.loads(ended.out).items()}

    def config(self, text: str) -> str:
        path = self.home / "ns.conf"
        path.write_text(text)
        return str(path)


@pytest.fixture
def cometmq(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> Command:
    return Command(tmp_path, monkeypatch, capsys)


def test_the_settings_are_printed_with_their_origin(cometmq: Command) -> None:
    """N2: one a line, sorted; the server is not started."""
    ended = cometmq("namesrv", "-c", cometmq.config("orderMessageEnable=true\n"), "-p", "--port", "1")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines == sorted(lines)
    assert any(line.startswith("listenPort=1 ") and line.endswith("# flag") for line in lines)
    assert any(line.startswith("orderMessageEnable=true ") and "ns.conf" in line for line in lines)
    assert any(line.startswith("clusterTest=false ") and line.endswith("# default") for line in lines)


def test_the_settings_are_printed_as_json(cometmq: Command) -> None:
    """N2: for programs."""
    settings = cometmq.settings("--bind", "127.0.0.1")
    assert settings["bindAddress"] == ("127.0.0.1", "flag")
    assert settings["listenPort"] == ("9876", "default")
    assert settings["tls.server.mode"] == ("permissive", "default")


def test_a_flag_wins_over_a_variable_and_a_variable_over_the_file(cometmq: Command) -> None:
    """N2: file, then variables, then flags."""
    file = cometmq.config("listenPort=1\nwaitSecondsForService=1\nserverSocketBacklog=1\n")
    variables = {"COMETMQ_LISTEN_PORT": "2", "COMETMQ_WAIT_SECONDS_FOR_SERVICE": "2"}
    settings = cometmq.settings("-c", file, "--port", "3", **variables)
    assert settings["listenPort"] == ("3", "flag")
    assert settings["waitSecondsForService"] == ("2", "environment")
    assert settings["serverSocketBacklog"] == ("1", file)


def test_a_named_flag_wins_over_set(cometmq: Command) -> None:
    """N2: the more special one counts."""
    settings = cometmq.settings("--set", "listenPort=1", "--set", "clusterTest=true", "--port", "2")
    assert settings["listenPort"] == ("2", "flag")
    assert settings["clusterTest"] == ("true", "flag")


def test_state_is_kept_in_the_home_folder_unless_said_otherwise(cometmq: Command) -> None:
    """N2: where Apache's name server keeps it."""
    settings = cometmq.settings(ROCKETMQ_HOME="/opt/rocketmq")
    assert settings["kvConfigPath"][0] == f"{cometmq.home}/namesrv/kvConfig.json"
    assert settings["configStorePath"][0] == f"{cometmq.home}/namesrv/namesrv.properties"
    assert settings["rocketmqHome"][0] == "/opt/rocketmq"


def test_changes_by_request_go_to_the_file_that_was_given(cometmq: Command) -> None:
    """N2, N9: whatever `configStorePath` in it says, because it may have been copied; a flag still wins."""
    file = cometmq.config("configStorePath=/somewhere/else.conf\n")
    assert cometmq.settings("-c", file)["configStorePath"] == (file, "-c")
    assert cometmq.settings("-c", file, "--set", "configStorePath=/x")["configStorePath"] == ("/x", "flag")


def test_stored_settings_that_are_not_read_are_pointed_out(cometmq: Command) -> None:
    """N2: without -c they are not in force, as with Apache's name server."""
    stored = cometmq.home / "namesrv" / "namesrv.properties"
    stored.parent.mkdir()
    stored.write_text("listenPort=5\n")
    ended = cometmq("namesrv", "-p")
    told = f"{stored} has settings that were stored by request; they are read with -c {stored} only"
    assert ended.err == f"warning: {told}\n"
    assert "listenPort=9876 " in ended.out
    assert cometmq("namesrv", "-p", "-c", str(stored)).err == ""


def test_a_password_is_not_printed(cometmq: Command) -> None:
    """N2: settings are pasted into reports."""
    ended = cometmq("namesrv", "-p", "--set", "tls.server.keyPassword=secret")
    assert "secret" not in ended.out
    assert "tls.server.keyPassword=****** " in ended.out


@pytest.mark.parametrize(
    ("key", "nearest"), [("listenport", "listenPort"), ("tls.server.mod", "tls.server.mode")]
)
def test_an_unknown_key_is_a_warning_with_the_nearest_known_one(
    cometmq: Command, key: str, nearest: str
) -> None:
    """N2: one line on standard error; the command goes on."""
    file = cometmq.config(f"{key}=1\n")
    ended = cometmq("namesrv", "-c", file, "-p")
    assert ended.code == 0
    assert ended.err == f"warning: unknown key {key} ({file}) is ignored; did you mean {nearest}?\n"


def test_an_unknown_variable_is_a_warning_with_the_nearest_known_one(
    cometmq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N2: a name server knows those of a broker, too."""
    monkeypatch.setenv("COMETMQ_LISTEN_PROT", "1")
    monkeypatch.setenv("COMETMQ_BROKER_NAME", "b")
    expected = "unknown variable COMETMQ_LISTEN_PROT is ignored; did you mean COMETMQ_LISTEN_PORT?"
    assert cometmq("namesrv", "-p").err == f"warning: {expected}\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--set", "listenPort=many"], "listenPort = 'many' (flag) is not a whole number from 0 to 65535"),
        (["--port", "70000"], "listenPort = '70000' (flag) is not a whole number from 0 to 65535"),
        (["--set", "clusterTest=yes"], "clusterTest = 'yes' (flag) is not true or false"),
        (
            ["--set", "tls.server.mode=x"],
            "tls.server.mode = 'x' (flag) is not one of disabled, enforcing, permissive",
        ),
        (["--log-level", "loud"], "--log-level 'loud' is not one of debug, info, warning, error"),
        (["--set", "listenPort"], "--set 'listenPort' is not key=value, for example --set listenPort=9877"),
        (
            ["-c", "/no/such.conf"],
            "the configuration file /no/such.conf cannot be read: No such file or directory",
        ),
        (
            ["--set", "kvConfigPath="],
            "kvConfigPath is empty; name the file in which changes by request are kept",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(cometmq: Command, arguments: list[str], error: str) -> None:
    """N2: no trace, nothing started."""
    ended = cometmq("namesrv", "--log-level", "error", *arguments)
    assert (ended.code, ended.out, ended.err) == (1, "", f"error: {error}\n")


def test_a_mistake_in_a_variable_names_where_it_came_from(cometmq: Command) -> None:
    """N2: the environment is easily forgotten."""
    ended = cometmq("namesrv", "-p", COMETMQ_LISTEN_PORT="x")
    assert ended.code == 1
    assert ended.err == "error: listenPort = 'x' (environment) is not a whole number from 0 to 65535\n"


def test_the_version(cometmq: Command) -> None:
    """N2: one line."""
    assert cometmq("--version") == (0, f"cometmq {__version__}\n", "")


def test_the_help_has_examples(cometmq: Command) -> None:
    """N2: of the whole command and of this one."""
    assert "namesrv" in cometmq("--help").out
    text = cometmq("namesrv", "--help").out
    for example in ("cometmq namesrv -c namesrv.conf", "--set orderMessageEnable=true", "-p"):
        assert example in text
