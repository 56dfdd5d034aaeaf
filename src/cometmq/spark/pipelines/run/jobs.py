"""Jobs: what each pipeline can be told, in a definition file, by flags, or from Python.

    namesrvAddr = "127.0.0.1:9876"
    topics = ["orders", "refunds"]
    output = "/data/archive"

    [source]                       # further options of the source, as in .option(name, value)
    maxOffsetsPerTrigger = 1000000

    [spark]                        # where it runs, and Spark's own settings
    master = "spark://host:7077"
    "spark.executor.memory" = "4g"

Rules kept here:
- A field with `flag(...)` is also a flag of `cometmq pipeline`, with this help text. Flags win over the file.
- An unknown key is an error that names the nearest known one; so is a value of the wrong type.
- No PySpark is imported here: the command line reads the flags without it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from cometmq.model.errors import SettingsError
from cometmq.model.names import TRACE_TOPIC
from cometmq.spark.options import Options, nearest

SPARK_TABLE: Final = "spark"
OPTION_TABLES: Final = ("source", "sink")
FORMATS: Final = ("parquet", "json", "csv", "orc")
DEFAULT_BATCH_ROWS: Final = 4_000_000
_LISTS: Final = ("topics",)


class Flag(NamedTuple):
    """A field as a flag of the command line; without names it is an argument."""

    field: str
    type: Any
    """`str`, `bool`, `int`, `float`, or `list[str]` for a flag that can be repeated."""
    names: tuple[str, ...]
    help: str
    metavar: str | None
    least: float | None


def flag(*names: str, help: str, metavar: str | None = None, least: float | None = None) -> msgspec.Meta:
    return msgspec.Meta(description=help, extra={"names": names, "metavar": metavar, "least": least})


def flags_of(job: type[msgspec.Struct]) -> Iterator[Flag]:
    """The flags of a pipeline, in the order of its fields."""
    for field in msgspec.structs.fields(job):
        if get_origin(field.type) is Annotated:
            base, meta = get_args(field.type)
            yield Flag(field.encode_name, _flag_type(base), help=meta.description, **meta.extra)


def _flag_type(base: Any) -> Any:
    chosen = next((each for each in get_args(base) if each is not type(None)), base)
    if get_origin(base) is tuple:
        return list[str]
    return str if get_origin(base) is Literal else chosen


_Topics = Annotated[
    tuple[str, ...], flag("--topic", "-t", help="A topic; may be given often.", metavar="TOPIC")
]
_Pattern = Annotated[
    str | None, flag("--pattern", help="Topics whose whole names match this.", metavar="REGEX")
]
_From = Annotated[
    str | None, flag("--from", help="Messages stored since: 2h (ago), or a time.", metavar="WHEN")
]
_To = Annotated[str | None, flag("--to", help="Messages stored before: a time.", metavar="WHEN")]
_ToNamesrv = flag("--to-namesrv", help="The name servers of the other cluster.", metavar="ADDRS")
_Group = Annotated[
    str | None, flag("--group", help="A consumer group that shows how far it is.", metavar="GROUP")
]
_Every = Annotated[
    float, flag("--every", help="How long messages are gathered.", metavar="DURATION", least=0.0)
]
_CHECKPOINT: Final = flag("--checkpoint", help="Where it notes how far it is.", metavar="DIR")
_KeepQueues = Annotated[
    bool, flag("--keep-queues/--spread", help="To queues of the same numbers, or to any.")
]
_AtLeastOnce = Annotated[
    bool, flag("--at-least-once", help="For Apache's brokers: what is done again is sent again.")
]


class Job(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The options of every pipeline over a cluster."""

    namesrv_addr: str
    source: dict[str, str] = {}
    """Further options of the source `rocketmq`; they win over what the pipeline sets."""

    def source_options(self, **own: str | None) -> dict[str, str]:
        """The options of the source."""
        given = {"namesrvAddr": self.namesrv_addr, **own}
        return {name: value for name, value in given.items() if value is not None} | self.source


class TopicsJob(Job, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The options of a pipeline that reads topics."""

    topics: _Topics = ()
    topic_pattern: _Pattern = None
    start: _From = msgspec.field(default=None, name="from")

    def topic_options(self) -> dict[str, str | None]:
        """The topics and the start as options of the source."""
        if bool(self.topics) == bool(self.topic_pattern):
            raise SettingsError("name the topics to read, or give a topicPattern; one of the two is needed")
        return {
            "topics": ",".join(self.topics) or None,
            "topicPattern": self.topic_pattern,
            "startingTimestamp": self.start,
            "startingOffsets": "earliest" if self.start is None else None,
        }


class ArchiveJob(TopicsJob, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Archive topics as Parquet."""

    output: Annotated[str, flag("-o", "--output", help="Where the files go.", metavar="DIR")]
    """A folder, or an address of any file system that Spark knows."""
    follow: Annotated[bool, flag("--follow", help="Go on for ever.")] = False
    every_s: _Every = 60.0
    group: _Group = None
    batch_rows: Annotated[
        int, flag("--batch-rows", help="Messages of a batch at most.", metavar="N", least=1)
    ] = DEFAULT_BATCH_ROWS
    properties: Annotated[
        Literal["user", "all", "none"],
        flag("--properties", help="Which to archive: user, all or none.", metavar="WHICH"),
    ] = "user"
    compression: Annotated[
        str, flag("--compression", help="snappy, zstd, lz4_raw, gzip or none.", metavar="NAME")
    ] = "snappy"
    checkpoint: Annotated[str | None, _CHECKPOINT] = None
    """None is a folder in the output."""


class ReplayJob(TopicsJob, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Send messages of a time range again."""

    archive: Annotated[
        str | None, flag("--archive", help="Read from this archive instead.", metavar="DIR")
    ] = None
    end: _To = msgspec.field(default=None, name="to")
    to_topic: Annotated[str, flag("--to-topic", help="Where to.", metavar="TOPIC")]
    to_namesrv_addr: Annotated[str | None, _ToNamesrv] = None
    """None is the same cluster."""
    checkpoint: Annotated[str, _CHECKPOINT]
    rate: Annotated[int | None, flag("--rate", help="Messages a second.", metavar="N", least=1)] = None
    keep_queues: _KeepQueues = False
    at_least_once: _AtLeastOnce = False
    written_range: str | None = None
    """The time range as it was written, if that identifies this replay; else the times do."""
    sink: dict[str, str] = msgspec.field(default_factory=dict)
    """Further options of the sink."""

    def __post_init__(self) -> None:
        if self.archive is not None and self.topic_pattern is not None:
            raise SettingsError("topicPattern is for topics of a cluster; name topics of an archive, or none")
        if self.rate is not None and self.rate < 1:
            raise SettingsError(f"rate is {self.rate}; it has to be at least 1 message a second")

    @property
    def times_ms(self) -> tuple[int | None, int | None]:
        return time_ms("startingTimestamp", self.start), time_ms("endingTimestamp", self.end)


class MirrorJob(TopicsJob, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Copy topics to another cluster."""

    to_namesrv_addr: Annotated[str, _ToNamesrv]
    checkpoint: Annotated[str, _CHECKPOINT]
    prefix: Annotated[str, flag("--prefix", help="Put before the names of topics there.", metavar="TEXT")] = (
        ""
    )
    group: _Group = None
    once: Annotated[bool, flag("--once", help="End with what there is now.")] = False
    every_s: _Every = 1.0
    batch_rows: int = 1_000_000
    keep_queues: _KeepQueues = True
    at_least_once: _AtLeastOnce = False
    sink: dict[str, str] = msgspec.field(default_factory=dict)
    """Further options of the sink."""

    def __post_init__(self) -> None:
        if self.to_namesrv_addr == self.namesrv_addr and not self.prefix:
            raise SettingsError("both clusters are the same one; a prefix keeps the topics apart")

    def target_options(self) -> dict[str, str]:
        return {"namesrvAddr": self.to_namesrv_addr, **self.sink}


class SqlJob(Job, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Query topics in SQL."""

    query: Annotated[str, flag(help="What to ask, in Spark's SQL.", metavar="QUERY")]
    stream: Annotated[bool, flag("--stream", help="Again as messages come.")] = False
    once: Annotated[bool, flag("--once", help="With --stream: end with what there is now.")] = False
    start: _From = msgspec.field(default=None, name="from")
    end: _To = msgspec.field(default=None, name="to")
    properties: Annotated[bool, flag("--properties", help="Read the properties of messages, too.")] = False
    output: Annotated[str | None, flag("-o", "--output", help="A folder for the result.", metavar="DIR")] = (
        None
    )
    """Without `output` and `to_topic` the rows are shown."""
    format: Annotated[str, flag("--format", help="Of files: parquet, json, csv or orc.", metavar="NAME")] = (
        "parquet"
    )
    overwrite: Annotated[bool, flag("--overwrite", help="Replace the folder.")] = False
    to_topic: Annotated[str | None, flag("--to-topic", help="A topic for the result.", metavar="TOPIC")] = (
        None
    )
    to_namesrv_addr: str | None = None
    mode: Annotated[
        str | None, flag("--mode", help="Of a stream: append, update, complete.", metavar="NAME")
    ] = None
    limit: Annotated[int, flag("--limit", "-l", help="Rows to show at most.", least=1)] = 100
    every_s: _Every = 5.0
    checkpoint: Annotated[str | None, _CHECKPOINT] = None
    at_least_once: _AtLeastOnce = False
    sink: dict[str, str] = msgspec.field(default_factory=dict)
    """Further options of the sink."""

    def __post_init__(self) -> None:
        if self.output is not None and self.to_topic is not None:
            raise SettingsError("output and toTopic exclude each other; give one of them")
        if self.format not in FORMATS:
            raise SettingsError(f"format is {self.format!r}; it has to be {', '.join(FORMATS)}")
        if self.stream and self.end is not None:
            raise SettingsError("a stream has no end; leave to away, or stream")
        if self.stream and self.to_topic is not None and self.checkpoint is None:
            raise SettingsError(
                "checkpoint is missing; a stream into a topic needs one to go on where it was"
            )


class TracesJob(Job, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Report latencies and failures from message traces."""

    start: _From = msgspec.field(default=None, name="from")
    end: _To = msgspec.field(default=None, name="to")
    trace_topic: Annotated[str, flag("--trace-topic", help="The topic of the traces.", metavar="TOPIC")] = (
        TRACE_TOPIC
    )

    def options(self, **own: str) -> dict[str, str]:
        return self.source_options(startingTimestamp=self.start, endingTimestamp=self.end, **own)


class DeadLettersJob(TracesJob, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Report the dead letters of consumer groups."""

    groups: Annotated[
        tuple[str, ...], flag("--group", help="Only this group; may be given often.", metavar="GROUP")
    ] = ()


J = TypeVar("J", bound=msgspec.Struct)


def read_definition(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None


def job_of(kind: type[J], *layers: Mapping[str, object]) -> J:
    """Make a job from layers such as file and flags; later layers win, tables of options are merged."""
    values: dict[str, object] = {}
    known = kind.__struct_encode_fields__
    for layer in layers:
        for name, value in layer.items():
            if name not in known:
                hint = nearest(name, known, f"there are {', '.join(known)}")
                raise SettingsError(f"this pipeline has no option {name!r}; {hint}")
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
    """Parse a time of a job like an option of a source."""
    return Options({name: text or ""}, (name,), "a pipeline").time_ms(name)


def spark_table(definition: Mapping[str, object]) -> dict[str, str]:
    """The table `[spark]` of a definition: `master`, and settings with their Spark names."""
    return _texts(SPARK_TABLE, definition.get(SPARK_TABLE, {}))


def _texts(name: str, table: object) -> dict[str, str]:
    if not isinstance(table, Mapping):
        raise SettingsError(f"{name} has to be a table of options, [{name}]")
    return {str(key): str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in table.items()}  # fmt: skip


def _sentence(problem: str) -> str:
    """An error of msgspec as a sentence."""
    missing = problem.partition("missing required field `")[2].partition("`")[0]
    if missing:
        return f"{missing} is missing; give it by its flag, or in the definition file"
    text, _, field = problem.partition(" - at `$.")
    return f"{field.rstrip('`')}: {text}" if field else text
