"""Contexts: named clusters in a file of the user, and where a command finds its cluster.

Rules kept here:
- A context is complete: with it, no variable adds an address, a key or a TLS setting. A key is never sent to
  a cluster that it was not given for.
- The order is: `--context`, then `--namesrv` or the variables COMETMQ_NAMESRV and NAMESRV_ADDR, then the
  context that COMETMQ_CONTEXT names, then the one chosen by `cometmq context use`, then this machine.
  `--namesrv` together with `--context` replaces its name servers.
- The file can hold keys. Only its owner may read it, and it is replaced as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from cometmq.cli.common.output import UsageError, did_you_mean, note
from cometmq.model.errors import NotFoundError
from cometmq.remoting.name_server_addresses import DOMAIN_VARIABLE, listed_in

DEFAULT_NAMESRV: Final = "127.0.0.1:9876"
CONTEXT_VARIABLE: Final = "COMETMQ_CONTEXT"
VARIABLES: Final = {
    "namesrv": "COMETMQ_NAMESRV",
    "accessKey": "COMETMQ_ACCESS_KEY",
    "secretKey": "COMETMQ_SECRET_KEY",
    "tls": "COMETMQ_TLS",
    "tlsTrust": "COMETMQ_TLS_TRUST",
    "tlsCert": "COMETMQ_TLS_CERT",
    "tlsKey": "COMETMQ_TLS_KEY",
    "tlsKeyPassword": "COMETMQ_TLS_KEY_PASSWORD",
}
"""The settings of a context, and the variables that they stand for."""
SECRETS: Final = ("secretKey", "tlsKeyPassword")


class Contexts:
    """All contexts, and the one in use."""

    def __init__(self, path: Path, by_name: dict[str, dict[str, str]], in_use: str | None) -> None:
        self.path = path
        self.by_name = by_name
        self.in_use = in_use

    def get(self, name: str) -> dict[str, str]:
        """The settings of a context that has to exist."""
        if name not in self.by_name:
            near = did_you_mean(name, self.by_name) or "; see: cometmq context list"
            raise NotFoundError(f"there is no context {name}{near}")
        return self.by_name[name]

    def write(self) -> None:
        """Replace the file."""
        import msgspec

        whole = {"inUse": self.in_use, "contexts": self.by_name}
        document = msgspec.json.format(msgspec.json.encode(whole), indent=2)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self.path.with_suffix(".new")
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(document + b"\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)


def read_contexts(environment: Mapping[str, str] = os.environ) -> Contexts:
    """The contexts of the user; a missing file has none."""
    home = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    path = Path(home) / "cometmq" / "contexts.json"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Contexts(path, {}, None)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    import msgspec

    class File(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
        contexts: dict[str, dict[str, str]] = {}
        in_use: str | None = None

    try:
        found = msgspec.json.decode(content, type=File)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is no file of contexts: {error}; correct it or delete it") from None
    for name, settings in found.contexts.items():
        unknown = settings.keys() - VARIABLES.keys()
        if unknown:
            raise UsageError(f"{path}: context {name} has the unknown setting {min(unknown)}; correct it")
        if not settings.get("namesrv"):
            raise UsageError(f"{path}: context {name} has no name server; add namesrv, or remove the context")
    if any(name in each for each in found.contexts.values() for name in SECRETS):
        _warn_of_readers(path, path.stat().st_mode)
    return Contexts(path, found.contexts, found.in_use)


@cache
def _warn_of_readers(path: Path, mode: int) -> None:
    """Once in a command: it may read the file several times."""
    if mode & 0o077:
        note(f"warning: other users can read the keys in {path}; say: chmod 600 {path}")


def names_servers(environment: Mapping[str, str]) -> bool:
    """Whether a variable names servers, or the address server that lists them."""
    return bool(listed_in(environment).strip(" ;") or environment.get(DOMAIN_VARIABLE))


def context_in_force(
    namesrv: str, context: str, environment: Mapping[str, str] = os.environ
) -> tuple[str, dict[str, str]] | None:
    """The context that a command with these options uses, with its settings; None if it uses none."""
    if context:
        return context, read_contexts(environment).get(context)
    if namesrv or names_servers(environment):
        return None
    contexts = read_contexts(environment)
    name = environment.get(CONTEXT_VARIABLE) or contexts.in_use
    return None if name is None else (name, contexts.get(name))


def variables(namesrv: str, context: str, environment: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """The variables of a command with these options: those of its context, or of its environment."""
    found = context_in_force(namesrv, context, environment)
    if found is not None:
        return {VARIABLES[setting]: value for setting, value in found[1].items()}
    if namesrv or names_servers(environment):
        return environment
    return {**environment, VARIABLES["namesrv"]: DEFAULT_NAMESRV}


def masked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without their secrets."""
    return {name: "***" if name in SECRETS else value for name, value in settings.items()}
