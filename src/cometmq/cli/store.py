"""`cometmq store`: inspect and verify a store directory, dump its messages, rebuild its queues and index.

Rules kept here:
- All commands but `rebuild` open files for reading only. `inspect`, `dump` and `set-aside` also read the
  store of a running broker; `verify` does not, because it would take changes for damage.
- Data goes to standard output, everything else to standard error.
- Commands import what they need when they run: `cometmq --help` needs none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cometmq.cli.commands import CommandGroup
from cometmq.cli.common.connect import AsJson, Yes
from cometmq.cli.common.output import confirm, counted, note, print_json, print_table, say, shown, time_text
from cometmq.model.errors import SettingsError, StoreError
from cometmq.model.peer_text import escaped, escaped_json

if TYPE_CHECKING:
    from cometmq.store.config import StoreConfig
    from cometmq.store.tools.inspect import StoreSummary
    from cometmq.store.tools.rebuild import Rebuilt

app = CommandGroup("store")

Directory = Annotated[Path, typer.Argument(help="The store directory (storePathRootDir).", metavar="DIR")]
Config = Annotated[
    Path | None,
    typer.Option("-c", "--config", help="The broker's properties file, if available.", metavar="FILE"),
]


@app.command()
def inspect(directory: Directory, config: Config = None, as_json: AsJson = False) -> None:
    """Show log, queues, index and checkpoint of a store. Also while a broker runs.

    Examples:
      cometmq store inspect ~/store
      cometmq store inspect ~/store --json | jq .log
    """
    from cometmq.ports.disk import SystemDisk
    from cometmq.store.tools.inspect import inspect_store
    from cometmq.store.tools.survey import alone_with

    disk = SystemDisk()
    with _one_line_errors(), alone_with(disk, directory) as is_alone:
        summary = inspect_store(disk, directory, store_settings(config), in_use=not is_alone)
    shown(summary, _show_summary, as_json=as_json)


@app.command()
def verify(directory: Directory, config: Config = None, as_json: AsJson = False) -> None:
    """Check every file of a store that is not in use, without changing it.

    Examples:
      cometmq store verify ~/store
      cometmq store verify ~/store -c broker.conf --json

    The exit code is 0 if nothing was found, and 1 otherwise.
    """
    from cometmq.ports.disk import SystemDisk
    from cometmq.store.tools.survey import alone_with
    from cometmq.store.tools.verify import verify_store

    disk = SystemDisk()
    with _one_line_errors(), alone_with(disk, directory) as is_alone:
        if not is_alone:
            raise StoreError(f"{directory} is in use by another process; stop it, or verify a copy")
        with progress_bar("verifying") as progress:
            result = verify_store(disk, directory, store_settings(config), progress)
    if as_json:
        print_json(result)
    else:
        for finding in result.findings:
            say(str(finding))
        if result.total_findings > len(result.findings):
            say(f"… and {result.total_findings - len(result.findings)} more")
        if result.total_findings and not result.stopped_in_order:
            say("The last stop was not an orderly one: the next start of a broker recovers the store.")
        say(
            f"{counted(result.total_findings, 'finding')} in {counted(result.records, 'message')}, "
            f"{counted(result.queues, 'queue')} and {result.index_entries} index entries"
        )
    if result.total_findings:
        raise typer.Exit(1)


@app.command()
def dump(
    directory: Directory,
    topic: Annotated[str, typer.Option("--topic", help="The topic.", metavar="TOPIC")],
    queue: Annotated[int | None, typer.Option("--queue", help="Only this queue.", metavar="N")] = None,
    from_offset: Annotated[
        int, typer.Option("--from", help="Begin at this queue offset.", metavar="OFFSET")
    ] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Maximum number of messages.", metavar="N", min=0)
    ] = None,
    config: Config = None,
) -> None:
    """Print the messages of a topic, one JSON document a line. Also while a broker runs.

    Examples:
      cometmq store dump ~/store --topic orders
      cometmq store dump ~/store --topic orders --queue 3 --from 1000
    """
    import msgspec

    from cometmq.ports.disk import SystemDisk
    from cometmq.store.tools.dump import dump_topic
    from cometmq.store.tools.survey import alone_with

    disk, encoder = SystemDisk(), msgspec.json.Encoder()
    with _one_line_errors(), alone_with(disk, directory) as is_alone:
        if not is_alone:
            note(f"{directory} is in use; these are its messages of this moment")
        messages = dump_topic(
            disk,
            directory,
            topic,
            queue_id=queue,
            from_offset=from_offset,
            limit=limit,
            config=store_settings(config),
        )
        is_terminal = sys.stdout.isatty()
        for message in messages:
            document = encoder.encode(message)
            if is_terminal:
                document = escaped_json(document.decode()).encode()
            sys.stdout.buffer.write(document + b"\n")
        sys.stdout.buffer.flush()


@app.command("set-aside")
def set_aside(directory: Directory, as_json: AsJson = False) -> None:
    """Show the records that the broker could not process and set aside. Also while it runs.

    Examples:
      cometmq store set-aside ~/store
      cometmq store set-aside ~/store --json | jq .records

    The records are still in the store:

      cometmq store dump ~/store --topic TOPIC --queue N --from OFFSET --limit 1
    """
    from cometmq.broker.set_aside import SetAsideTable
    from cometmq.ports.disk import SystemDisk
    from cometmq.store.tables.files import CONFIG_FOLDER, ConfigFile

    with _one_line_errors():
        if not directory.is_dir():
            raise StoreError(f"{directory} is no folder; name the store directory (storePathRootDir)")
        file = ConfigFile(SystemDisk(), directory / CONFIG_FOLDER, SetAsideTable)
        table = file.load(repair=False) or SetAsideTable()
        if file.is_begun_anew:
            raise StoreError(f"{file.path} cannot be read; the next start of a broker makes it again")
    if as_json:
        print_json(table)
        return
    total = sum(table.totals.values())
    if not total:
        say("No record was set aside.")
        return
    print_table(
        ("SERVICE", "TOPIC", "QUEUE", "OFFSET", "COMMIT LOG", "STORED", "REASON"),
        [
            (
                each.service,
                each.topic,
                each.queue_id,
                each.queue_offset,
                each.commit_log_offset,
                time_text(each.store_timestamp),
                each.reason,
            )
            for each in table.records
        ],
    )
    by_service = ", ".join(f"{service} {count}" for service, count in sorted(table.totals.items()))
    say(f"{counted(total, 'record')} since the store was made: {by_service}")


@app.command()
def rebuild(directory: Directory, config: Config = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Rebuild the consume queues and the index of a store from its commit log.

    Examples:
      cometmq store rebuild ~/store
      cometmq store rebuild ~/store -c broker.conf --yes --json

    The broker has to be stopped. The old queues and index stay in place until the new ones are complete.
    """
    from cometmq.ports.clock import SystemClock
    from cometmq.ports.disk import SystemDisk
    from cometmq.ports.folders import SystemFolders
    from cometmq.store.tools.rebuild import rebuild_store

    settings = store_settings(config)
    confirm(f"Replace the queues and the index of {directory}?", yes=yes)
    with _one_line_errors(), progress_bar("rebuilding") as progress:
        result = rebuild_store(SystemDisk(), SystemFolders(), SystemClock(), directory, settings, progress)
    shown(result, show_rebuilt, as_json=as_json)


def show_rebuilt(result: Rebuilt) -> None:
    """The result of a rebuild for people."""
    say(
        f"{counted(result.messages, 'message')}, {counted(result.queues, 'queue')}, "
        f"{counted(result.indexed, 'message')} in the index"
    )
    if result.left_out_topics:
        say(f"without queues, as the broker does not know them: {', '.join(result.left_out_topics)}")


def store_settings(config: Path | None) -> StoreConfig | None:
    """The store's part of a broker's properties file."""
    if config is None:
        return None
    from cometmq.cli.servers.settings import file_layer
    from cometmq.model.settings import Layer, resolve
    from cometmq.store.config import StoreConfig

    layer = file_layer(config)
    known = StoreConfig.__struct_encode_fields__
    values = {key: value for key, value in layer.values.items() if key in known}
    if not values:
        raise SettingsError(f"{config} has no setting of a store; is it the broker's file?")
    return resolve(StoreConfig, [Layer(layer.name, values)]).settings


@contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader of the output has ended
        sys.stderr.close()
        raise typer.Exit(0) from None
    except OSError as error:
        raise StoreError(f"{error.filename or 'the store'}: {error.strerror or error}") from None


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _show_summary(summary: StoreSummary) -> None:
    state = "in use, figures of this moment" if summary.in_use else "not in use"
    stop = "" if summary.stopped_in_order or summary.in_use else "; the last stop was not an orderly one"
    say(f"{summary.root} ({state}{stop})")
    log = summary.log
    span = f"{time_text(log.first_store_time)} to {time_text(log.last_store_time)}"
    say(
        f"log: {counted(log.files, 'file')} of {log.file_size} bytes, "
        f"{log.min_offset} to {log.max_offset}, {span}"
    )
    for each in summary.index:
        span = f"{time_text(each.first_store_time)} to {time_text(each.last_store_time)}"
        say(f"index {each.name}: {each.entries} entries, {span}")
    if summary.checkpoint is not None:
        point = summary.checkpoint
        say(
            f"checkpoint: log {time_text(point.physic_msg_timestamp)}, "
            f"queues {time_text(point.logics_msg_timestamp)}, index {time_text(point.index_msg_timestamp)}"
        )
    width = max([len("topic"), *(len(escaped(queue.topic)) for queue in summary.queues)])
    say(f"{'topic':<{width}}  {'queue':>5}  {'min':>12}  {'max':>12}  first and last message")
    for queue in summary.queues:
        span = queue.error or f"{time_text(queue.first_store_time)} to {time_text(queue.last_store_time)}"
        numbers = f"{queue.queue_id:>5}  {queue.min_offset:>12}  {queue.max_offset:>12}"
        say(f"{escaped(queue.topic):<{width}}  {numbers}  {span}")
    for path in summary.misplaced:
        say(f"does not belong here: {path}")
