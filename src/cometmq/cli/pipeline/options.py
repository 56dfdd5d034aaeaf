"""The command line that all pipelines share: flags, job, Spark session, and progress.

Rules kept here:
- The flags of a pipeline are derived from the fields of its job. A flag wins over the definition file, and
  the file over the environment and the context. Keys and TLS settings are never flags: others can see a
  command line.
- Missing requirements of Spark are reported before anything starts.
- Progress goes to standard error: a status line on a terminal, elsewhere a line every 10 s.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

import typer

from cometmq.cli.commands import help_texts, options_of
from cometmq.cli.common.connect import AsJson, Context, Namesrv
from cometmq.cli.common.contexts import variables
from cometmq.cli.common.output import INTERRUPTED, UsageError, note, print_json, say, status_line
from cometmq.cli.common.times import duration, parse_time
from cometmq.cli.servers.settings import pairs_of
from cometmq.model.errors import SettingsError
from cometmq.remoting.name_server_addresses import listed_in

if TYPE_CHECKING:
    import msgspec
    from pyspark.sql import SparkSession

    from cometmq.spark.pipelines.run.jobs import Flag
    from cometmq.spark.pipelines.run.streams import Progress, Report

    J = TypeVar("J", bound=msgspec.Struct)

Definition = Annotated[
    Path | None,
    typer.Option("-f", "--file", help="Definition file (TOML) with these options.", metavar="FILE"),
]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Spark master; this machine by default.", metavar="URL"),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", help="Spark setting; may be repeated.", metavar="KEY=VALUE"),
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option("--option", help="Option of the source; may be repeated.", metavar="KEY=VALUE"),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show the log of Spark.")]
_SETTINGS: Final = {"COMETMQ_ACCESS_KEY": "accessKey", "COMETMQ_SECRET_KEY": "secretKey"}
_TLS_KEYS: Final = {
    "COMETMQ_TLS_CERT": "tls.client.certPath",
    "COMETMQ_TLS_KEY": "tls.client.keyPath",
    "COMETMQ_TLS_KEY_PASSWORD": "tls.client.keyPassword",
}
_LINE_S: Final = 10.0
_KEYWORD: Final = Parameter.KEYWORD_ONLY
_TIMES: Final = ("from", "to")
_DURATIONS: Final = ("everyS",)


class Run(NamedTuple):
    """The options that all pipelines share."""

    name: str
    file: Definition = None
    namesrv: Namesrv = ""
    context: Context = ""
    master: Master = None
    conf: Conf = None
    options: SourceOptions = None
    verbose: Verbose = False
    as_json: AsJson = False

    def job(self, job: type[J], **flags: object) -> J:
        """The job of a pipeline, from its definition and its flags."""
        from cometmq.spark.pipelines.run.jobs import SPARK_TABLE, job_of, read_definition

        definition = read_definition(self.file) if self.file is not None else {}
        definition.pop(SPARK_TABLE, None)
        named = self.namesrv or definition.get("namesrvAddr")
        found = variables(str(named or ""), self.context)
        known = job.__struct_encode_fields__
        given = {name: value for name, value in flags.items() if value is not None and value != []}
        if self.options:
            given["source"] = _pairs(self.options, "--option minPartitions=8")
        if self.namesrv or self.context:
            given["namesrvAddr"] = self.namesrv or listed_in(found)
        first: dict[str, object] = {name: _secrets(found) for name in ("source", "sink") if name in known}
        if "namesrvAddr" in known and (address := listed_in(found)):
            first["namesrvAddr"] = address
        layers = [first, definition, given]
        if "writtenRange" in known:
            layers.append({"writtenRange": _written_range(layers)})
        try:
            return job_of(job, *(_with_times(layer) for layer in layers))
        except SettingsError as error:
            raise UsageError(str(error)) from None

    @contextmanager
    def spark(self) -> Iterator[SparkSession]:
        """A session for the pipeline; an interrupt ends the command with `INTERRUPTED`."""
        from cometmq.spark.pipelines.run.jobs import read_definition, spark_table
        from cometmq.spark.pipelines.run.session import Place, spark_session

        table = spark_table(read_definition(self.file)) if self.file is not None else {}
        master = self.master or table.pop("master", None)
        table.pop("master", None)
        settings = {**table, **_pairs(self.conf or (), "--conf spark.sql.shuffle.partitions=8")}
        if not sys.stderr.isatty() and not self.verbose:
            note(f"starting Spark for {self.name}")
        place = Place(f"cometmq {self.name}", master, settings, verbose=self.verbose)
        try:
            with spark_session(place) as session:
                yield session
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def job_command(
    app: typer.Typer, name: str, job: type[J], more: str = ""
) -> Callable[[Callable[[Run, J], None]], Callable[[Run, J], None]]:
    """Register `run(run, job)` as a command whose flags are the fields of the job; `more` ends its help."""
    from cometmq.spark.pipelines.run.jobs import flags_of

    flags = list(flags_of(job))

    def register(run: Callable[[Run, J], None]) -> Callable[[Run, J], None]:
        def command(**given: Any) -> None:
            need_spark()
            values = {each.field: given.pop(f"job_{each.field}") for each in flags}
            options = Run(name, **given)
            run(options, options.job(job, **values))

        own = [Parameter(f"job_{each.field}", _KEYWORD, default=None, annotation=_parameter(each))
               for each in flags]  # fmt: skip
        command.__signature__ = Signature([*own, *options_of(Run)])  # type: ignore[attr-defined]
        texts = help_texts(run)
        epilog = f"{texts['epilog']}\n\n{more.strip()}"
        app.command(name, help=texts["help"], epilog=epilog)(command)
        return run

    return register


def _parameter(flag: Flag) -> Any:
    settings: dict[str, Any] = {"help": flag.help, "metavar": flag.metavar, "min": flag.least}
    if flag.metavar == "DURATION":
        settings["parser"] = duration(flag.least or 0.0)
    option = typer.Option(*flag.names, **settings) if flag.names else typer.Argument(**settings)
    return Annotated[flag.type | None, option]


def need_spark() -> None:
    """Check the requirements of Spark before it is imported."""
    from cometmq.spark.pipelines.run.session import check_needs

    check_needs()


def _pairs(given: Sequence[str], example: str) -> dict[str, str]:
    return {name: value.strip() for name, value in pairs_of(given, example).items()}


def _secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Keys and TLS options from the environment."""
    found = {option: environment[name] for name, option in _SETTINGS.items() if environment.get(name)}
    if environment.get("COMETMQ_TLS", "").lower() in ("1", "true"):
        found["tls.enable"] = "true"
        if environment.get("COMETMQ_TLS_TRUST"):
            found["tls.client.trustCertPath"] = environment["COMETMQ_TLS_TRUST"]
            found["tls.client.authServer"] = "true"
        found |= {option: environment[name] for name, option in _TLS_KEYS.items() if environment.get(name)}
    return found


def _with_times(layer: Mapping[str, object]) -> dict[str, object]:
    """A layer with times as milliseconds, and durations as seconds."""
    times = {name: str(parse_time(str(layer[name]))) for name in _TIMES if layer.get(name) is not None}
    durations = {name: duration()(value) for name in _DURATIONS if isinstance(value := layer.get(name), str)}
    return {**layer, **times, **durations}


def _written_range(layers: Sequence[Mapping[str, object]]) -> str:
    """The time range as written: `10m` means another time in the next run."""
    written = {name: value for layer in layers for name, value in layer.items() if name in _TIMES}
    return " to ".join(str(written.get(name)) for name in _TIMES)


@contextmanager
def shown_progress(name: str) -> Iterator[Report]:
    """A callback that shows the progress of a pipeline."""
    with status_line(name, _LINE_S) as show:
        yield lambda progress: show(_line(progress))


def _line(progress: Progress) -> str:
    waiting = "" if progress.waiting is None else f", {progress.waiting:,} waiting"
    return f"{progress.rows:,} messages, {progress.rows_per_second:,.0f} a second{waiting}"


def show_done(run: Run, done: Progress, sentence: str) -> None:
    """Print the result; exit with `INTERRUPTED` after an interrupt."""
    if run.as_json:
        print_json(done)
    else:
        say(sentence)
    if done.interrupted:
        note("interrupted; start it again with the same options to go on")
        raise typer.Exit(INTERRUPTED)
