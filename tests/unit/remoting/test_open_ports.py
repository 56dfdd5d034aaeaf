"""Who is told that a port is open to others."""

from __future__ import annotations

import logging

import pytest

from cometmq.remoting.open_ports import is_loopback, warn_if_open

log = logging.getLogger("cometmq.remoting")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("broker.example.com", False),
        ("", False),
    ],
)
def test_only_what_others_reach_is_told(host: str, loopback: bool, caplog: pytest.LogCaptureFixture) -> None:
    assert is_loopback(host) is loopback
    warn_if_open(log, "everything can be read", host, (10911, 10909), "bindAddress")
    if loopback:
        assert not caplog.messages
    else:
        (line,) = caplog.messages
        assert line.startswith(f"everything can be read on {host}:10911 and {host}:10909: ")
        assert "Set bindAddress = 127.0.0.1" in line
        assert "docs/SECURITY.md" in line
