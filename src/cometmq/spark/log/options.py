"""Options of the source `rocketmq-log`.

Rules kept here:
- Only a path is required. The default broker name is the name of the store folder, or of its parent if the
  folder is called `store`.
- Topics that the broker no longer has are left out by default, as consumers cannot see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from cometmq.model.errors import SettingsError
from cometmq.spark.options import TOPIC_OPTIONS, IncludeProperties, Options, scalar_options
from cometmq.spark.pushdown import FOR_EVER

DEFAULT_PARTITION_BYTES: Final = 128 * 1024 * 1024
"""As for Spark's files: starting a Python task costs as much as reading a third of this."""
_USUAL_FOLDER: Final = "store"


class StorePath(msgspec.Struct, frozen=True):
    """A store directory and the name of its broker."""

    root: str
    broker_name: str


class LogOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The options of a query; scalar fields are Spark options of the same name."""

    stores: tuple[StorePath, ...]
    topics: frozenset[str] | None = None
    """None for all."""
    topic_pattern: str | None = None
    """Matches whole topic names."""
    keys: frozenset[str] | None = None
    """None for all messages."""
    times_ms: tuple[int, int] = (0, FOR_EVER)
    """Store timestamps: inclusive start, exclusive end."""
    mode: str = "failfast"
    include_properties: IncludeProperties = False
    include_deleted_topics: bool = False
    check_crc: bool = False
    partition_bytes: Annotated[int, msgspec.Meta(ge=4096)] = DEFAULT_PARTITION_BYTES

    def __post_init__(self) -> None:
        if self.mode.lower() not in ("permissive", "failfast"):
            raise SettingsError(f"mode is {self.mode.lower()!r}; it has to be permissive or failfast")

    @property
    def permissive(self) -> bool:
        """Whether damage is reported in a column instead of an error."""
        return self.mode.lower() == "permissive"


LOG_OPTIONS: Final = (
    *("path", "brokerName", "keys", "startingTimestamp", "endingTimestamp"),
    *(*TOPIC_OPTIONS, *scalar_options(LogOptions)),
)


def log_options(given: Mapping[str, str], *, properties_chosen: bool = False) -> LogOptions:
    """Read and check the options of a query; the schema of the user may choose the properties."""
    options = Options(given, LOG_OPTIONS, "the source rocketmq-log")
    topics, _ = options.topics()
    start, end = options.time_ms("startingTimestamp"), options.time_ms("endingTimestamp")
    times = start or 0, FOR_EVER if end is None else end
    if times[0] >= times[1]:
        raise SettingsError("endingTimestamp is not after startingTimestamp; no message can be between them")
    scalars: dict[str, Any] = {"include_properties": "user" if properties_chosen else False}
    scalars |= options.scalars(LogOptions)
    return LogOptions(
        stores=_stores(options),
        topics=frozenset(topics) if options.has("topic") or options.has("topics") else None,
        keys=frozenset(keys.split()) if (keys := options.text("keys")) is not None else None,
        times_ms=times,
        **scalars,
    )


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
