"""The configuration reference, generated from the settings: `python -m cometmq.cli.reference`.

It prints `docs/CONFIGURATION.md`; a test compares the two. The type of a setting says its state, and the text
below its declaration what it means.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec

from cometmq.broker import config as broker_config
from cometmq.broker.config import BrokerConfig
from cometmq.model import newer_settings
from cometmq.model.settings import State, state_of
from cometmq.namesrv import config as namesrv_config
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.remoting.server_settings import UNSUPPORTED, ServerSettings
from cometmq.store import config as store_config
from cometmq.store.config import NO_REPLICATION, StoreConfig

_DERIVED: Final = "(of this machine)"
"""Shown where a default is worked out when the server starts."""

_HEAD: Final = """\
# Configuration reference

Written by `python -m cometmq.cli.reference`; do not edit it by hand.

Keys are RocketMQ's. Values come from three places; the last one wins:

1. the properties file: `-c FILE`
2. environment variables: `COMETMQ_LISTEN_PORT` is `listenPort`, `COMETMQ_TLS_SERVER_MODE` is
   `tls.server.mode`
3. flags: `--set key=value`

`-p` prints every setting and where its value came from. An unknown key in the file, or an unknown variable
`COMETMQ_…`, is ignored, with a warning that names the nearest known one. An unknown key of a flag is an
error, and so is a value of the wrong type, or out of its range.

The state of a setting says what becomes of a change by request (`cometmq config set`, `mqadmin
updateBrokerConfig`). A server that was started with `-c FILE` keeps changes in that file.

| state | |
| --- | --- |
| live | the change is in force at once |
| next start | it is kept, and in force from the next start on |
| start only | requests for it are refused with code 16; set it in the file, and start again |
| no effect | there is no such thread pool, lock or buffer; it is kept, so that one file serves both systems |
| only … | CometMQ does not have the feature yet; other values are refused, at the start and by request |
"""


_NEWER_HEAD: Final = """
## Brokers of RocketMQ 5.4 and 5.5

Keys that these added. A start warns that they have no effect, or refuses them.

| key | state | meaning |
| --- | --- | --- |
"""

_RULES: Final = {
    rule.key: rule
    for rules in (
        broker_config.UNSUPPORTED,
        UNSUPPORTED,
        NO_REPLICATION,
        namesrv_config.UNSUPPORTED,
        store_config.UNSUPPORTED,
    )
    for rule in rules
}


class Setting(NamedTuple):
    key: str
    values: str
    default: str
    state: str
    meaning: str


def settings_of(struct: type[msgspec.Struct]) -> Iterator[Setting]:
    """The settings of one declaration, in its order."""
    meanings = _meanings(struct)
    for info in msgspec.structs.fields(struct):
        key, rule = info.encode_name, _RULES.get(info.encode_name)
        default = _text(info.default) if info.default is not msgspec.NODEFAULT else _DERIVED
        state = f"only {rule.allowed or 'empty'}" if rule is not None else state_of(info.type)
        yield Setting(key, _values_text(info.type), default, state, meanings.get(info.name, ""))


def _meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The text below each field of a struct, and of those that it extends."""
    found = {}
    for declared in [each for each in struct.__mro__ if issubclass(each, msgspec.Struct)][:-1]:
        (tree,) = ast.parse(inspect.getsource(declared)).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                    found[name] = " ".join(said.split())
    return found


def _text(value: object) -> str:
    if value is None or value == "":
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values_text(annotation: Any) -> str:
    """The possible values of a setting in words."""
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(str(choice) for choice in get_args(annotation))
    if origin is Annotated:
        base, *notes = get_args(annotation)
        return _values_text(base) + "".join(_range_text(note.ge, note.le) for note in notes)
    if origin is not None:  # a union with None
        return " or ".join(_values_text(part) for part in get_args(annotation) if part is not type(None))
    return {bool: "true or false", int: "number", float: "fraction", str: "text"}[annotation]


def _range_text(least: float | None, most: float | None) -> str:
    if least is None or least == -(2**31):
        return ""
    return f" from {least}" if most in (None, 2**31 - 1, 2**63 - 1) else f" {least}–{most}"


def reference() -> str:
    """The whole page."""
    parts = [_HEAD]
    shared = set(ServerSettings.__struct_encode_fields__)
    namesrv = [*settings_of(NamesrvConfig), *settings_of(NamesrvSettings)]
    for title, about, settings in (
        (
            "Broker",
            "`cometmq broker -c FILE`, beside the keys of the store and of the server.",
            settings_of(BrokerConfig),
        ),
        ("Store", "In the same file as the broker's.", settings_of(StoreConfig)),
        (
            "Name server",
            "`cometmq namesrv -c FILE`, beside the keys of the server.",
            (each for each in namesrv if each.key not in shared),
        ),
        ("Every server", "TLS and connections, of brokers and name servers.", settings_of(ServerSettings)),
    ):
        parts.append(f"\n## {title}\n\n{about}\n")
        parts.append("\n| key | value | default | state | meaning |\n| --- | --- | --- | --- | --- |\n")
        for each in settings:
            default = f"`{each.default}`" if each.default and each.default != _DERIVED else each.default
            parts.append(f"| `{each.key}` | {each.values} | {default} | {each.state} | {each.meaning} |\n")
    parts.append(_NEWER_HEAD)
    for key, reason in sorted(newer_settings.REASONS.items()):
        state = "only false" if key in newer_settings.REFUSED else State.NO_EFFECT
        parts.append(f"| `{key}` | {state} | {reason[0].upper()}{reason[1:]}. |\n")
    return "".join(parts)


if __name__ == "__main__":
    print(reference(), end="")
