"""Contexts: where a command finds its cluster, and the file that names clusters."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cometmq.cli.common.connect import Link
from cometmq.cli.common.contexts import Contexts, read_contexts, variables
from cometmq.cli.common.output import UsageError
from cometmq.model.errors import NotFoundError


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment with two contexts, of which `prod` is in use."""
    found = {"XDG_CONFIG_HOME": str(tmp_path)}
    contexts = read_contexts(found)
    contexts.by_name = {
        "prod": {"namesrv": "prod:9876", "accessKey": "ops", "secretKey": "s3cret", "tls": "true"},
        "test": {"namesrv": "test:9876"},
    }
    contexts.in_use = "prod"
    contexts.write()
    return found


def namesrv(environment: dict[str, str], *, option: str = "", context: str = "") -> str:
    return str(Link(option, context).options(environment)["namesrv"])


def test_the_order_in_which_a_command_finds_its_cluster(environment: dict[str, str]) -> None:
    """Each one wins over those after it."""
    assert namesrv(environment, option="here:1", context="test") == "here:1"
    both = {**environment, "COMETMQ_NAMESRV": "env:9876", "COMETMQ_CONTEXT": "test"}
    assert namesrv(both, context="prod") == "prod:9876"
    assert namesrv(both, option="here:1") == "here:1"
    assert namesrv(both) == "env:9876"
    assert namesrv({**environment, "NAMESRV_ADDR": "old:9876"}) == "old:9876"
    assert namesrv({**environment, "COMETMQ_CONTEXT": "test"}) == "test:9876"
    assert namesrv(environment) == "prod:9876"
    contexts = read_contexts(environment)
    contexts.in_use = None
    contexts.write()
    assert namesrv(environment) == "127.0.0.1:9876"
    assert namesrv({**environment, "COMETMQ_NAMESRV_DOMAIN": "mq.example.org"}) == ""


def test_keys_go_only_where_they_were_given_for(environment: dict[str, str]) -> None:
    """A context adds nothing to an address from elsewhere, and a variable nothing to a context."""
    keys = {**environment, "COMETMQ_ACCESS_KEY": "mine", "COMETMQ_SECRET_KEY": "other"}
    assert Link().options(keys)["access_key"] == "ops"
    assert Link().options(keys)["secret_key"] == "s3cret"
    assert "tls" in Link().options(keys)
    assert Link(context="test").options(keys)["access_key"] is None
    elsewhere = Link("here:1").options(keys)
    assert (elsewhere["access_key"], "tls" in elsewhere) == ("mine", False)
    assert Link("here:1", "prod").options(keys)["access_key"] == "ops"


def test_a_context_that_does_not_exist_is_reported_with_one_that_does(environment: dict[str, str]) -> None:
    with pytest.raises(NotFoundError, match=r"there is no context prd; did you mean prod\?"):
        variables("", "prd", environment)
    with pytest.raises(NotFoundError, match="there is no context other; see: cometmq context list"):
        variables("", "", {**environment, "COMETMQ_CONTEXT": "other"})


def test_only_its_owner_can_read_the_file(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = read_contexts(environment).path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert capsys.readouterr().err == ""
    path.chmod(0o644)
    contexts = read_contexts(environment)
    assert "other users can read the keys in" in capsys.readouterr().err
    contexts.write()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is no file of contexts"),
        ('{"contexts": {"a": {"namesrv": "a:1", "colour": "red"}}}', "unknown setting colour"),
        ('{"contexts": {"a": {"tls": "true"}}}', "context a has no name server"),
    ],
)
def test_a_file_that_cannot_be_understood_is_refused(
    environment: dict[str, str], content: str, complaint: str
) -> None:
    read_contexts(environment).path.write_text(content)
    with pytest.raises(UsageError, match=complaint):
        read_contexts(environment)


def test_a_file_that_is_not_there_has_no_contexts(tmp_path: Path) -> None:
    found: Contexts = read_contexts({"XDG_CONFIG_HOME": str(tmp_path / "none")})
    assert (found.by_name, found.in_use) == ({}, None)
