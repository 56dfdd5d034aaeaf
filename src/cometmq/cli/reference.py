"""The configuration reference, generated from the settings: `python -m cometmq.cli.reference`.

It prints `docs/CONFIGURATION.md`; a test compares the two. The remark of a setting is the comment beside its
declaration.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec

from cometmq.broker import config as broker_config
from cometmq.broker.config import BrokerConfig
from cometmq.model import newer_settings
from cometmq.model.settings import is_fixed
from cometmq.namesrv import config as namesrv_config
from cometmq.namesrv.config import NamesrvConfig
from cometmq.remoting.server_settings import UNSUPPORTED, ServerSettings
from cometmq.store import config as store_config
from cometmq.store.config import NO_REPLICAS, StoreConfig

_FIELD: Final = re.compile(r"    (\w+): .*?(?:#\s*(.*))?$")
_DERIVED: Final = "(of this machine)"
"""Shown where a default is worked out when the server starts."""

AT_START: Final = "at the start only"

_HEAD: Final = """\
# Configuration reference

Written by `python -m cometmq.cli.reference`; do not edit it by hand.

Keys are RocketMQ's. Values come from three places; the last one wins:

1. the properties file: `-c FILE`
2. environment variables: `COMETMQ_LISTEN_PORT` is `listenPort`, `COMETMQ_TLS_SERVER_MODE` is
   `tls.server.mode`
3. flags: `--set key=value`

`-p` prints every setting and where its value came from. An unknown key is ignored, with a warning that names
the nearest known key. A value of the wrong type, or out of its range, is an error. The last column says:

- *only …*: other values are refused, because CometMQ does not have the feature yet.
- *no effect*: CometMQ has no such thread pool, lock or buffer. The value is kept and returned, so one file
  serves both systems.
- *at the start only*: requests (`mqadmin updateBrokerConfig`, `cometmq config set`) cannot change it; they
  are answered with code 16.
"""


_NEWER_HEAD: Final = """
## Brokers of RocketMQ 5.4 and 5.5

Keys that these added. A start warns that they have no effect, or refuses them.

| key | |
| --- | --- |
"""

_RULES: Final = {
    rule.key: rule
    for rules in (
        broker_config.UNSUPPORTED,
        UNSUPPORTED,
        NO_REPLICAS,
        namesrv_config.UNSUPPORTED,
        store_config.UNSUPPORTED,
    )
    for rule in rules
}


class Setting(NamedTuple):
    key: str
    values: str
    default: str
    remark: str


def settings_of(struct: type[msgspec.Struct]) -> Iterator[Setting]:
    """The settings of one declaration, in its order."""
    remarks = _remarks(struct)
    for info in msgspec.structs.fields(struct):
        default = _text(info.default) if info.default is not msgspec.NODEFAULT else _DERIVED
        remark = remarks.get(info.name, "")
        if info.encode_name in _RULES:
            remark = f"only {_RULES[info.encode_name].allowed or 'empty'}; other values are refused"
        said = [remark, AT_START if is_fixed(info.type) else ""]
        yield Setting(info.encode_name, _values_text(info.type), default, "; ".join(filter(None, said)))


def _remarks(struct: type[msgspec.Struct]) -> dict[str, str]:
    declared = [each for each in struct.__mro__ if issubclass(each, msgspec.Struct)][:-1]
    lines = (line for each in declared for line in inspect.getsource(each).splitlines())
    found = (_FIELD.match(line) for line in lines)
    return {match[1]: match[2] for match in found if match is not None and match[2]}


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
        ranges = [
            f" {note.ge} or more" if note.le is None else f" {note.ge}–{note.le}"
            for note in notes
            if note.ge is not None
        ]
        return _values_text(base) + "".join(ranges)
    if origin is not None:  # a union with None
        return " or ".join(_values_text(part) for part in get_args(annotation) if part is not type(None))
    return {bool: "true or false", int: "number", float: "fraction", str: "text"}[annotation]


def reference() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, about, struct in (
        ("Broker", "`cometmq broker -c FILE`, beside the keys of the store and of the server.", BrokerConfig),
        ("Store", "In the same file as the broker's.", StoreConfig),
        ("Name server", "`cometmq namesrv -c FILE`, beside the keys of the server.", NamesrvConfig),
        ("Every server", "TLS and connections, of brokers and name servers.", ServerSettings),
    ):
        parts.append(f"\n## {title}\n\n{about}\n")
        parts.append("\n| key | value | default | |\n| --- | --- | --- | --- |\n")
        for each in settings_of(struct):
            default = f"`{each.default}`" if each.default and each.default != _DERIVED else each.default
            parts.append(f"| `{each.key}` | {each.values} | {default} | {each.remark} |\n")
    parts.append(_NEWER_HEAD)
    for key, reason in sorted(newer_settings.REASONS.items()):
        refused = "only false; other values are refused" if key in newer_settings.REFUSED else "no effect"
        parts.append(f"| `{key}` | {refused}: {reason} |\n")
    return "".join(parts)


if __name__ == "__main__":
    print(reference(), end="")
