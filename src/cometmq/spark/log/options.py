"""Options of the source `rocketmq-log`.

Rules kept here:
- Only a path is required. The default broker name is the name of the store folder, or of its parent if the
  folder is called `store`.
- Topics that the broker no longer has are left out by default, as consumers cannot see them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from cometmq.model.errors import SettingsError
from cometmq.spark.options import IncludeProperties, Options

LOG_OPTIONS: Final = (
    "path",
    "brokerName",
    "topic",
    "topics",
    "topicPattern",
    "keys",
    "startingTimestamp",
    "endingTimestamp",
    "mode",
    "includeProperties",
    "includeDeletedTopics",
    "checkCrc",
    "partitionBytes",
)
DEFAULT_PARTITION_BYTES: Final = 128 * 1024 * 1024
"""As for Spark's files: starting a Python task costs as much as reading a third of this."""
_LEAST_PARTITION_BYTES: Final = 4096
_USUAL_FOLDER: Final = "store"
_FOR_EVER: Final = 2**62


class StorePath(msgspec.Struct, frozen=True):
    """A store directory and the name of its broker."""

    root: str
    broker_name: str


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a query reads."""

    stores: tuple[StorePath, ...]
    topics: frozenset[str] | None = None
    """None for all."""
    pattern: str | None = None
    """Topics whose whole names match this."""
    keys: frozenset[str] | None = None
    """None for all messages."""
    times_ms: tuple[int, int] = (0, _FOR_EVER)
    """Store timestamps: inclusive start, exclusive end."""
    permissive: bool = False
    include_properties: IncludeProperties = False
    include_deleted: bool = False
    check_crc: bool = False
    partition_bytes: int = DEFAULT_PARTITION_BYTES


def log_options(given: Mapping[str, str]) -> LogOptions:
    """The options of a query."""
    options = Options(given, LOG_OPTIONS, "the source rocketmq-log")
    topics, pattern = _topics(options)
    start, end = options.time_ms("startingTimestamp"), options.time_ms("endingTimestamp")
    times = start or 0, _FOR_EVER if end is None else end
    if times[0] >= times[1]:
        raise SettingsError("endingTimestamp is not after startingTimestamp; no message can be between them")
    return LogOptions(
        stores=_stores(options),
        topics=topics,
        pattern=pattern,
        keys=frozenset(keys.split()) if (keys := options.text("keys")) is not None else None,
        times_ms=times,
        permissive=is_permissive(given),
        include_properties=options.included_properties("includeProperties"),
        include_deleted=options.flag("includeDeletedTopics", default=False),
        check_crc=options.flag("checkCrc", default=False),
        partition_bytes=options.number("partitionBytes", least=_LEAST_PARTITION_BYTES)
        or DEFAULT_PARTITION_BYTES,
    )


def is_permissive(given: Mapping[str, str]) -> bool:
    """Whether damage is reported in a column instead of an error."""
    mode = (Options(given, LOG_OPTIONS, "the source rocketmq-log").text("mode") or "failfast").lower()
    if mode not in ("permissive", "failfast"):
        raise SettingsError(f"mode is {mode!r}; it has to be permissive or failfast")
    return mode == "permissive"


def _stores(options: Options) -> tuple[StorePath, ...]:
    roots = [path.strip() for path in (options.text("path") or "").split(",") if path.strip()]
    if not roots:
        raise SettingsError("path is missing; write .load('/data/store'), or several with commas between")
    roots = [root.removeprefix("file://") for root in roots]
    given = options.text("brokerName")
    if given is None:
        names = [_name_of(Path(root)) for root in roots]
    else:
        names = [name.strip() for name in given.split(",")]
        if len(names) != len(roots) or not all(names):
            raise SettingsError(
                f"brokerName has {len(names)} names for {len(roots)} paths; give one for each"
            )
    if len(set(names)) < len(names):
        raise SettingsError(
            f"several stores would have the broker name {max(names, key=names.count)!r}; "
            "tell them apart with brokerName, one for each path, with commas between"
        )
    return tuple(StorePath(root, name) for root, name in zip(roots, names, strict=True))


def _name_of(root: Path) -> str:
    root = root.absolute()
    return root.parent.name if root.name == _USUAL_FOLDER and root.parent.name else root.name


def _topics(options: Options) -> tuple[frozenset[str] | None, str | None]:
    given = options.only_one_of("topic", "topics", "topicPattern")
    if given is None:
        return None, None
    text = options.text(given) or ""
    if given == "topicPattern":
        try:
            re.compile(text)
        except re.error as error:
            raise SettingsError(f"topicPattern {text!r} is no regular expression: {error}") from None
        return None, text
    names = text.split(",") if given == "topics" else [text]
    return frozenset(name.strip() for name in names if name.strip()), None
