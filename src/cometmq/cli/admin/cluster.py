"""`cometmq cluster`: brokers, their state, their producers, their write permission.

Rules kept here: a broker that does not answer, or whose store refuses messages, is a row of the result, and
makes the exit code 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from cometmq.cli.admin import cluster_kv
from cometmq.cli.commands import CommandGroup
from cometmq.cli.common.connect import NO_LINK, AsJson, Cluster, Link, Times, Watch, Yes, ask, watch
from cometmq.cli.common.output import (
    FAILED,
    Column,
    confirm,
    listed,
    print_json,
    print_pairs,
    print_table,
    time_text,
    told,
)
from cometmq.model.errors import CometError, NotFoundError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin

app = CommandGroup("cluster")
app.command("kv-get")(cluster_kv.kv_get)
app.command("kv-set")(cluster_kv.kv_set)
app.command("kv-delete")(cluster_kv.kv_delete)

_ROLES: Final = {0: "master"}

BrokerName = Annotated[str, typer.Argument(help="The name of the broker.", metavar="BROKER")]


class BrokerLine(msgspec.Struct, rename="camel", kw_only=True):
    """A broker as the name server knows it."""

    cluster: Annotated[str, Column("cluster")]
    broker_name: Annotated[str, Column("broker", marked=True)]
    broker_id: Annotated[int, Column("id")]
    address: Annotated[str, Column("address")]


class BrokerStatus(BrokerLine, rename="camel", kw_only=True):
    """A broker with its own figures."""

    reachable: bool
    version: Annotated[str | None, Column("version")] = None
    put_tps: Annotated[float | None, Column("in/s")] = None
    get_tps: Annotated[float | None, Column("out/s")] = None
    messages_today: Annotated[int | None, Column("today")] = None
    disk_percent: Annotated[float | None, Column("disk %")] = None
    error: str | None = None
    trouble: str | None = None
    """Why it refuses messages; Apache's broker does not say."""
    state: Annotated[str, Column("state")] = "ok"
    earliest_message_timestamp: int | None = None
    boot_timestamp: int | None = None


class ProducerLine(msgspec.Struct, rename="camel"):
    """A producer, and a broker that it is connected to."""

    group: Annotated[str, Column("group")]
    client_id: Annotated[str, Column("producer")]
    address: Annotated[str, Column("address")]
    language: Annotated[str, Column("language")]
    version: Annotated[str, Column("version")]
    broker_name: Annotated[str, Column("broker")]
    last_heartbeat_timestamp: Annotated[int | None, Column("last heartbeat (UTC)", time_text)] = None
    """None if one group was asked for: brokers do not say it then."""


async def producer_lines(admin: Admin, group: str | None, cluster: str | None) -> list[ProducerLine]:
    """The producers of a cluster or of all, of one group or of all."""
    from cometmq.client.admin.admin import for_each
    from cometmq.wire.codes import version_name

    masters = await admin.masters(cluster)

    async def of_broker(name: str) -> list[ProducerLine]:
        if group is not None:
            return [
                ProducerLine(
                    group,
                    each.client_id,
                    each.client_addr,
                    each.language,
                    version_name(max(each.version, 0)),
                    name,
                )
                for each in await admin.producer_connections(masters[name], group)
            ]
        return [
            ProducerLine(
                producer_group,
                each.client_id,
                each.remote_ip.removeprefix("/"),
                each.language,
                version_name(max(each.version, 0)),
                name,
                each.last_update_timestamp,
            )
            for producer_group, members in (await admin.producers(masters[name])).items()
            for each in members
        ]

    found = await for_each(masters, of_broker)
    return sorted(
        (line for lines in found.values() for line in lines),
        key=lambda line: (line.group, line.client_id, line.broker_name),
    )


async def broker_lines(admin: Admin, cluster: str | None) -> list[BrokerLine]:
    """All brokers of one cluster or of all, masters before replicas."""
    info = await admin.cluster_info()
    if cluster is not None and cluster not in info.cluster_addr_table:
        known = ", ".join(sorted(info.cluster_addr_table)) or "none"
        raise NotFoundError(f"there is no cluster {cluster!r}; the name server knows: {known}")
    return [
        BrokerLine(cluster=broker.cluster, broker_name=name, broker_id=broker_id, address=address)
        for name, broker in sorted(info.broker_addr_table.items())
        for broker_id, address in sorted(broker.broker_addrs.items())
        if cluster in (None, broker.cluster)
    ]


async def address_of(admin: Admin, broker_name: str) -> str:
    """The address of a broker's master, or of its member with the lowest id."""
    brokers = await broker_lines(admin, None)
    for each in brokers:
        if each.broker_name == broker_name:
            return each.address
    known = ", ".join(sorted({each.broker_name for each in brokers})) or "none"
    raise NotFoundError(f"there is no broker {broker_name!r}; the name server knows: {known}")


async def _status(admin: Admin, line: BrokerLine) -> BrokerStatus:
    fields = msgspec.structs.asdict(line)
    try:
        info = await admin.broker_info(line.address)
    except CometError as error:
        return BrokerStatus(**fields, reachable=False, error=str(error), state=f"unreachable: {error}")
    trouble = info.get("storeTrouble")
    return BrokerStatus(
        **fields,
        reachable=True,
        version=info.get("brokerVersionDesc"),
        put_tps=info_number(info, "putTps"),
        get_tps=info_number(info, "getTransferredTps"),
        messages_today=int(
            info_number(info, "msgPutTotalTodayNow") - info_number(info, "msgPutTotalTodayMorning")
        ),
        disk_percent=info_number(info, "commitLogDiskRatio") * 100,
        earliest_message_timestamp=int(info_number(info, "earliestMessageTimeStamp")),
        boot_timestamp=int(info_number(info, "bootTimestamp")),
        trouble=trouble,
        state="ok" if trouble is None else f"refuses messages: {trouble}",
    )


def info_number(info: Mapping[str, str], name: str) -> float:
    """A figure of a broker's runtime information, the first of several; 0 if it has none."""
    try:
        number = float(info.get(name, "").split()[0])
    except (ValueError, IndexError):
        return 0.0
    return number if isfinite(number) else 0.0


@app.command("list")
def list_brokers(cluster: Cluster = None, link: Link = NO_LINK, as_json: AsJson = False) -> None:
    """List the registered brokers, as the name server knows them.

    Examples:
      cometmq cluster list -n 127.0.0.1:9876
      cometmq cluster list --json | jq -r '.brokers[].address'
    """
    found = ask(link, lambda admin: broker_lines(admin, cluster))
    if as_json:
        print_json({"brokers": found})
        return
    rows = [
        (each.cluster, each.broker_name, each.broker_id, _ROLES.get(each.broker_id, "replica"), each.address)
        for each in found
    ]
    print_table(("cluster", "broker", "id", "role", "address"), rows, right=("id",), marked=("broker",))


@app.command()
def status(
    cluster: Cluster = None,
    every: Watch = None,
    times: Times = None,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Show version, throughput and disk usage of all brokers.

    Examples:
      cometmq cluster status -n 127.0.0.1:9876
      cometmq cluster status --watch 2

    The exit code is 1 if a broker does not answer, or refuses messages.
    """
    lost: list[bool] = []

    async def statuses(admin: Admin) -> list[BrokerStatus]:
        from cometmq.client.admin.admin import for_each

        found = {each.address: each for each in await broker_lines(admin, cluster)}
        answers = await for_each(found, lambda address: _status(admin, found[address]))
        return list(answers.values())

    def show(found: list[BrokerStatus]) -> None:
        lost[:] = [each.state != "ok" for each in found]
        listed({"brokers": found}, BrokerStatus, found, as_json=as_json, compact=every is not None)

    watch(link, statuses, show, every, times)
    if any(lost):
        raise typer.Exit(FAILED)


@app.command()
def show(broker: BrokerName, link: Link = NO_LINK, as_json: AsJson = False) -> None:
    """Show the runtime information of a broker.

    Examples:
      cometmq cluster show broker-a -n 127.0.0.1:9876
      cometmq cluster show broker-a --json | jq .info.commitLogDiskRatio
    """

    async def info(admin: Admin) -> tuple[str, dict[str, str]]:
        address = await address_of(admin, broker)
        return address, dict(sorted((await admin.broker_info(address)).items()))

    address, values = ask(link, info)
    if as_json:
        print_json({"brokerName": broker, "address": address, "info": values})
    else:
        print_pairs(values.items())


@app.command()
def producers(
    producer_group: Annotated[
        str | None, typer.Argument(help="Only this producer group.", metavar="[PRODUCER_GROUP]")
    ] = None,
    cluster: Cluster = None,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Show the producers that are connected to brokers.

    Examples:
      cometmq cluster producers -n 127.0.0.1:9876
      cometmq cluster producers order-service --json

    The exit code is 4 if no producer of the group is connected.
    """
    found = ask(link, lambda admin: producer_lines(admin, producer_group, cluster))
    if producer_group is not None and not found:
        raise NotFoundError(
            f"no producer of group {producer_group} is connected; see: cometmq cluster producers"
        )
    listed({"producers": found}, ProducerLine, found, as_json=as_json)


@app.command("wipe-write")
def wipe_write(broker: BrokerName, yes: Yes = False, link: Link = NO_LINK, as_json: AsJson = False) -> None:
    """Take the write permission from a broker: producers leave it, consumers go on.

    Examples:
      cometmq cluster wipe-write broker-a -n 127.0.0.1:9876
      cometmq cluster wipe-write broker-a --yes --json
    """
    ask(link, lambda admin: address_of(admin, broker))
    confirm(f"Have producers send nothing more to {broker}?", yes=yes)
    count = ask(link, lambda admin: admin.wipe_write_permission(broker))
    _told_change(broker, count, "takes no messages any more", as_json=as_json)


@app.command("add-write")
def add_write(broker: BrokerName, link: Link = NO_LINK, as_json: AsJson = False) -> None:
    """Give a broker its write permission back.

    Examples:
      cometmq cluster add-write broker-a -n 127.0.0.1:9876
      cometmq cluster add-write broker-a --json
    """

    async def add(admin: Admin) -> int:
        await address_of(admin, broker)
        return await admin.add_write_permission(broker)

    count = ask(link, add)
    _told_change(broker, count, "takes messages again", as_json=as_json)


def _told_change(broker: str, count: int, what: str, *, as_json: bool) -> None:
    sentence = f"{broker} {what}: {count} topics changed; clients know within 30 seconds"
    told({"brokerName": broker, "topics": count}, sentence, as_json=as_json)
