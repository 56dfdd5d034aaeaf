"""What pipelines are told: from a definition file, from flags, or from Python.

    namesrvAddr = "127.0.0.1:9876"
    topics = ["orders", "refunds"]
    output = "/data/archive"

    [source]                       # further options of the source, as in .option(name, value)
    maxOffsetsPerTrigger = 1000000

    [spark]                        # where it runs, and Spark's own settings
    master = "spark://host:7077"
    "spark.executor.memory" = "4g"

Rules kept here:
- A file is TOML. What a flag says wins over what the file says.
- A key that nobody knows is an error that names the nearest known one, and so is a value of the wrong kind.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from cometmq.model.errors import SettingsError
from cometmq.spark.options import Options

SPARK_TABLE: Final = "spark"
OPTION_TABLES: Final = ("source", "sink")
_LISTS: Final = ("topics",)


class Job(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What every pipeline over a cluster is told."""

    namesrv_addr: str
    source: dict[str, str] = {}
    """Further options of the source `rocketmq`; they win over what the pipeline says."""

    def source_options(self, **own: str | None) -> dict[str, str]:
        """The options of the source."""
        given = {"namesrvAddr": self.namesrv_addr, **own}
        return {name: value for name, value in given.items() if value is not None} | self.source


class TopicsJob(Job, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a pipeline is told that reads some topics."""

    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    """Topics whose whole names match this, also those that come to be later."""
    start: str | None = msgspec.field(default=None, name="from")
    """Since when messages were stored; None takes all that there are."""

    def topic_options(self) -> dict[str, str | None]:
        """Which topics, and from where on."""
        if bool(self.topics) == bool(self.topic_pattern):
            raise SettingsError("name the topics to read, or give a topicPattern; one of the two is needed")
        return {
            "topics": ",".join(self.topics) or None,
            "topicPattern": self.topic_pattern,
            "startingTimestamp": self.start,
            "startingOffsets": "earliest" if self.start is None else None,
        }


J = TypeVar("J", bound=msgspec.Struct)


def read_definition(path: Path) -> dict[str, object]:
    """What a definition file says."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None


def job_of(kind: type[J], *layers: Mapping[str, object]) -> J:
    """A job from what a file says and what flags say; later layers win, tables are put together."""
    values: dict[str, object] = {}
    known = kind.__struct_encode_fields__
    for layer in layers:
        for name, value in layer.items():
            if name not in known:
                _refuse_unknown(name, known)
            if name in OPTION_TABLES:
                before = values.get(name, {})
                assert isinstance(before, dict)
                values[name] = before | _texts(name, value)
            elif name in _LISTS and isinstance(value, str):
                values[name] = [each.strip() for each in value.split(",") if each.strip()]
            else:
                values[name] = value.isoformat() if isinstance(value, date) else value
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(_sentence(str(error))) from None


def time_ms(name: str, text: str | None) -> int | None:
    """A point in time of a job, as the options of sources have it."""
    return Options({name: text or ""}, (name,), "a pipeline").time_ms(name)


def spark_table(definition: Mapping[str, object]) -> dict[str, str]:
    """What a definition says about Spark: `master`, and settings with Spark's own names."""
    return _texts(SPARK_TABLE, definition.get(SPARK_TABLE, {}))


def _texts(name: str, table: object) -> dict[str, str]:
    if not isinstance(table, Mapping):
        raise SettingsError(f"{name} has to be a table of options, [{name}]")
    return {str(key): str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in table.items()}  # fmt: skip


def _refuse_unknown(name: str, known: tuple[str, ...]) -> None:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    raise SettingsError(f"this pipeline has no option {name!r}; {hint}")


def _sentence(problem: str) -> str:
    """What is wrong with a value, the way people read it."""
    missing = problem.partition("missing required field `")[2].partition("`")[0]
    if missing:
        return f"{missing} is missing; give it by its flag, or in the definition file"
    text, _, place = problem.partition(" - at `$.")
    return f"{place.rstrip('`')}: {text}" if place else text
