"""`cometmq config`: show, compare and change settings of running brokers and name servers.

Rules kept here:
- A key that a server does not have is refused before anything is changed: servers ignore unknown keys, and a
  typing error would look like a success.
- A password is never shown.
- A comparison leaves out names, ports and paths, which differ on every server, unless they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from cometmq.cli.admin.cluster import address_of, broker_lines
from cometmq.cli.commands import CommandGroup
from cometmq.cli.common.connect import NO_LINK, AsJson, Link, Yes, ask
from cometmq.cli.common.output import (
    FAILED,
    Column,
    UsageError,
    confirm,
    listed,
    note,
    print_json,
    print_pairs,
    print_table,
    say,
)
from cometmq.cli.servers.settings import pairs_of
from cometmq.model.errors import ClientError, NotFoundError
from cometmq.model.settings import State, nearest

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin
    from cometmq.client.admin.results import SettingsChanged

app = CommandGroup("config")

_HIDDEN: Final = "******"
_OWN_KEYS: Final = frozenset(
    {
        "brokerIP1",
        "brokerIP2",
        "brokerId",
        "brokerName",
        "brokerConfigPath",
        "bindAddress",
        "haListenPort",
        "haMasterAddress",
        "haServerAddress",
        "listenPort",
        "namesrvAddr",
        "rocketmqHome",
        "startAcceptSendRequestTimeStamp",
    }
)
"""Settings that differ on every server."""

Table = dict[str, str]
Broker = Annotated[str | None, typer.Option("--broker", help="This broker.", metavar="BROKER")]
NameServers = Annotated[bool, typer.Option("--name-servers", help="Settings of the name servers.")]


class SettingChange(msgspec.Struct):
    """A setting of one server before and after a change."""

    server: Annotated[str, Column("server")]
    key: Annotated[str, Column("key", marked=True)]
    before: Annotated[str | None, Column("before")]
    after: Annotated[str | None, Column("after")]
    state: Annotated[str | None, Column("state")] = None
    """What becomes of it; Apache's servers do not say."""
    kept: bool | None = None
    """Whether the next start has it."""


async def _settings(admin: Admin, broker: str | None, *, name_servers: bool) -> dict[str, Table]:
    """The settings of all masters by name, of one broker, or of all name servers by address."""
    from cometmq.client.admin.admin import for_each

    if name_servers:
        return await for_each(admin.name_servers(), admin.name_server_config)
    if broker is not None:
        return {broker: await admin.broker_config(await address_of(admin, broker))}
    masters = await admin.masters()
    return await for_each(masters, lambda name: admin.broker_config(masters[name]))


def _shown(key: str, value: str | None) -> str | None:
    return _HIDDEN if value and key.lower().endswith(("password", "secretkey")) else value


@app.command()
def get(
    keys: Annotated[list[str] | None, typer.Argument(help="Only these.", metavar="[KEY]...")] = None,
    broker: Broker = None,
    name_servers: NameServers = False,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Show the settings of running servers.

    Examples:
      cometmq config get -n 127.0.0.1:9876  # all settings of all brokers
      cometmq config get fileReservedTime flushDiskType --broker broker-a
      cometmq config get --name-servers --json | jq '.servers'

    The exit code is 4 if no server has a key that was asked for.
    """
    found = ask(link, lambda admin: _settings(admin, broker, name_servers=name_servers))
    known = sorted({key for table in found.values() for key in table})
    for key in keys or ():
        if key not in known:
            raise NotFoundError(f"no server has a setting {key}{nearest(key, known)}")
    wanted = [key for key in known if not keys or key in keys]
    if as_json:
        servers = {
            server: {key: _shown(key, table[key]) for key in wanted if key in table}
            for server, table in found.items()
        }
        print_json({"servers": servers})
    elif len(found) == 1:
        (table,) = found.values()
        print_pairs((key, _shown(key, table[key])) for key in wanted)
    else:
        _print_tables(found, wanted)


def _print_tables(tables: dict[str, Table], keys: list[str]) -> None:
    rows = [(key, *(_shown(key, table.get(key)) for table in tables.values())) for key in keys]
    print_table(("key", *tables), rows, marked=("key",))


@app.command("set")
def set_values(
    assignments: Annotated[list[str], typer.Argument(help="Settings to change.", metavar="KEY=VALUE...")],
    broker: Broker = None,
    every: Annotated[bool, typer.Option("--all", help="All brokers.")] = False,
    name_servers: NameServers = False,
    yes: Yes = False,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Change settings of running servers.

    Examples:
      cometmq config set fileReservedTime=48 --broker broker-a -n 127.0.0.1:9876
      cometmq config set autoCreateTopicEnable=false --all --yes
      cometmq config set orderMessageEnable=true --name-servers --yes

    The state says whether a change is in force at once (live), at the next start, or not at all. A server
    that was started with `-c FILE` keeps changes in that file; otherwise they last until it stops.
    """
    if (broker is not None) + every + name_servers != 1:
        raise UsageError("say whose settings these are: --broker BROKER, --all or --name-servers")
    changes = pairs_of(assignments, "fileReservedTime=48")
    before = ask(link, lambda admin: _settings(admin, broker, name_servers=name_servers))
    for server, table in before.items():
        for key in changes:
            if key not in table:
                raise UsageError(_not_changed(server, key, sorted(table)))
    texts = ", ".join(f"{key}={value}" for key, value in changes.items())
    confirm(f"Set {texts} on {', '.join(before)}?", yes=yes)

    async def change(admin: Admin) -> tuple[dict[str, Table], dict[str, SettingsChanged]]:
        said = {}
        for server in before:
            if name_servers:
                said[server] = await admin.set_name_server_config(server, changes)
            else:
                said[server] = await admin.set_broker_config(await address_of(admin, server), changes)
        return await _settings(admin, broker, name_servers=name_servers), said

    after, said = ask(link, change)
    _show_changes(changes, before, after, said, as_json=as_json)


def _not_changed(server: str, key: str, known: list[str]) -> str:
    from cometmq.namesrv.config import NamesrvSettings

    if key in NamesrvSettings.__struct_encode_fields__:
        return (
            f"{key} cannot be changed by request; set it in the configuration file of {server}, and restart"
        )
    return f"{server} has no setting {key}{nearest(key, known)}"


def _state_text(said: SettingsChanged, key: str) -> str | None:
    """For example "live", or "live, not kept"."""
    state = said.states.get(key)
    if said.kept_in is not None or state in (None, State.NO_EFFECT):
        return state
    return "not kept" if state == State.NEXT_START else f"{state}, not kept"


def _show_changes(
    changes: Mapping[str, str],
    before: dict[str, Table],
    after: dict[str, Table],
    said: dict[str, SettingsChanged],
    *,
    as_json: bool,
) -> None:
    done = [
        SettingChange(
            server,
            key,
            _shown(key, before[server].get(key)),
            _shown(key, after[server].get(key)),
            _state_text(said[server], key),
            said[server].kept_in is not None if said[server].states else None,
        )
        for server in before
        for key in changes
    ]
    listed({"changes": done}, SettingChange, done, as_json=as_json)
    for server, told in said.items():
        if told.kept_in is not None:
            note(f"{server} keeps this in {told.kept_in}")
        elif told.states:
            note(f"{server} does not keep this for its next start, because it was started without -c FILE")
    for server in before:
        for key, value in changes.items():
            if after[server].get(key) != value.strip():
                raise ClientError(f"{server} has {key}={after[server].get(key)} all the same; see its log")


@app.command()
def diff(
    broker: Broker = None,
    defaults: Annotated[bool, typer.Option("--defaults", help="Compare with the defaults.")] = False,
    every_key: Annotated[bool, typer.Option("--all", help="Include names, ports and paths.")] = False,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Show differences between the settings of brokers, or from the defaults.

    Examples:
      cometmq config diff -n 127.0.0.1:9876  # between all brokers
      cometmq config diff --broker broker-a --defaults  # changes on one
      cometmq config diff --json | jq '.differences[].key'

    The exit code is 1 if there are differences.
    """

    async def tables(admin: Admin) -> dict[str, Table]:
        if broker is not None or defaults:
            return await _settings(admin, broker, name_servers=False)
        found = {each.broker_name for each in await broker_lines(admin, None)}
        if len(found) < 2:
            raise UsageError("there is one broker only; say --defaults to compare it with the defaults")
        return await _settings(admin, None, name_servers=False)

    found = ask(link, tables)
    if defaults:
        found = {"default": _defaults(), **found}
    elif len(found) < 2:
        raise UsageError("there is nothing to compare it with; leave out --broker, or say --defaults")
    shared = set.intersection(*(set(table) for table in found.values()))
    different = [key for key in sorted(shared) if len({table[key] for table in found.values()}) > 1]
    shown = [key for key in different if every_key or not _is_own(key)]
    hidden = len(different) - len(shown)
    if as_json:
        rows = [
            {"key": key, "values": {server: _shown(key, table[key]) for server, table in found.items()}}
            for key in shown
        ]
        print_json({"servers": list(found), "differences": rows, "hidden": hidden})
    elif shown:
        _print_tables(found, shown)
    else:
        say(f"{', '.join(found)}: no differences")
    if hidden and not as_json:
        note(f"{hidden} names, ports and paths are different by their nature and not shown; --all shows them")
    if shown:
        raise typer.Exit(FAILED)


def _is_own(key: str) -> bool:
    return key in _OWN_KEYS or key.startswith("storePath")


def _defaults() -> Table:
    from cometmq.broker.config import BrokerConfig
    from cometmq.model.settings import as_texts
    from cometmq.store.config import StoreConfig

    return {**as_texts(BrokerConfig()), **as_texts(StoreConfig())}
