"""`cometmq cluster`: the brokers of a cluster, how they are, and which of them take messages.

Rules kept here: a broker that does not answer is a line of the result, and makes the exit code 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from cometmq.cli.commands import group_app
from cometmq.cli.common.connect import (
    TIMEOUT_S,
    AsJson,
    Cluster,
    Link,
    Namesrv,
    Timeout,
    Times,
    Watch,
    Yes,
    ask,
    watch,
)
from cometmq.cli.common.output import FAILED, confirm, print_json, print_pairs, print_table, say
from cometmq.model.errors import CometError, NotFoundError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin

app = group_app("cluster")

_ROLES: Final = {0: "master"}

BrokerName = Annotated[str, typer.Argument(help="The name of the broker.", metavar="BROKER")]


class BrokerLine(msgspec.Struct, rename="camel", kw_only=True):
    """A broker as name servers know it."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str


class BrokerStatus(BrokerLine, rename="camel", kw_only=True):
    """A broker and what it says about itself."""

    reachable: bool
    error: str | None = None
    version: str | None = None
    put_tps: float | None = None
    get_tps: float | None = None
    messages_today: int | None = None
    disk_percent: float | None = None
    earliest_message_timestamp: int | None = None
    boot_timestamp: int | None = None


class Brokers(msgspec.Struct):
    brokers: list[BrokerLine]


class Statuses(msgspec.Struct):
    brokers: list[BrokerStatus]


async def lines(admin: Admin, cluster: str | None) -> list[BrokerLine]:
    """All brokers of a cluster, or of all, masters before replicas."""
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
    """The address of a broker: of its master, or of the member with the lowest id."""
    found = [line for line in await lines(admin, None) if line.broker_name == broker_name]
    if not found:
        known = ", ".join(sorted({line.broker_name for line in await lines(admin, None)})) or "none"
        raise NotFoundError(f"there is no broker {broker_name!r}; the name server knows: {known}")
    return found[0].address


async def _status(admin: Admin, line: BrokerLine) -> BrokerStatus:
    fields = msgspec.structs.asdict(line)
    try:
        info = await admin.broker_info(line.address)
    except CometError as error:
        return BrokerStatus(**fields, reachable=False, error=str(error))
    return BrokerStatus(
        **fields,
        reachable=True,
        version=info.get("brokerVersionDesc"),
        put_tps=_first_number(info.get("putTps")),
        get_tps=_first_number(info.get("getTransferredTps")),
        messages_today=_whole(info, "msgPutTotalTodayNow") - _whole(info, "msgPutTotalTodayMorning"),
        disk_percent=_first_number(info.get("commitLogDiskRatio")) * 100,
        earliest_message_timestamp=_whole(info, "earliestMessageTimeStamp"),
        boot_timestamp=_whole(info, "bootTimestamp"),
    )


def _first_number(text: str | None) -> float:
    try:
        return float((text or "0").split()[0])
    except (ValueError, IndexError):
        return 0.0


def _whole(info: dict[str, str], name: str) -> int:
    try:
        return int(info.get(name, "0"))
    except ValueError:
        return 0


@app.command(
    "list",
    epilog="""
Examples:

  cometmq cluster list -n 127.0.0.1:9876

  cometmq cluster list --json | jq -r '.brokers[].address'
""",
)
def list_brokers(
    cluster: Cluster = None, namesrv: Namesrv = "", timeout: Timeout = TIMEOUT_S, as_json: AsJson = False
) -> None:
    """List the brokers that the name server knows, without asking them anything."""
    found = ask(Link(namesrv, timeout), lambda admin: lines(admin, cluster))
    if as_json:
        print_json(Brokers(found))
        return
    rows = [
        (each.cluster, each.broker_name, each.broker_id, _ROLES.get(each.broker_id, "replica"), each.address)
        for each in found
    ]
    print_table(("cluster", "broker", "id", "role", "address"), rows, right=("id",), marked=("broker",))


@app.command(
    epilog="""
Examples:

  cometmq cluster status -n 127.0.0.1:9876

  cometmq cluster status --watch 2

The exit code is 1 if a broker does not answer.
"""
)
def status(
    cluster: Cluster = None,
    every: Watch = None,
    times: Times = None,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show how all brokers are: version, messages a second, disk."""
    lost: list[bool] = []

    async def statuses(admin: Admin) -> Statuses:
        from cometmq.client.admin.admin import for_each

        found = {each.address: each for each in await lines(admin, cluster)}
        answers = await for_each(found, lambda address: _status(admin, found[address]))
        return Statuses(list(answers.values()))

    def show(found: Statuses) -> None:
        lost[:] = [not each.reachable for each in found.brokers]
        if as_json:
            print_json(found, compact=every is not None)
        else:
            _show_statuses(found.brokers)

    watch(Link(namesrv, timeout), statuses, show, every, times)
    if any(lost):
        raise typer.Exit(FAILED)


def _show_statuses(found: list[BrokerStatus]) -> None:
    titles = ("cluster", "broker", "id", "address", "version", "in/s", "out/s", "today", "disk %", "state")
    rows = [
        (
            each.cluster,
            each.broker_name,
            each.broker_id,
            each.address,
            each.version,
            each.put_tps,
            each.get_tps,
            each.messages_today,
            each.disk_percent,
            "ok" if each.reachable else f"unreachable: {each.error}",
        )
        for each in found
    ]
    numbers = ("id", "in/s", "out/s", "today", "disk %")
    print_table(titles, rows, right=numbers, marked=("broker",))


@app.command(
    epilog="""
Examples:

  cometmq cluster show broker-a -n 127.0.0.1:9876

  cometmq cluster show broker-a --json | jq .info.commitLogDiskRatio
"""
)
def show(
    broker: BrokerName, namesrv: Namesrv = "", timeout: Timeout = TIMEOUT_S, as_json: AsJson = False
) -> None:
    """Show everything that a broker says about its state."""

    async def info(admin: Admin) -> tuple[str, dict[str, str]]:
        address = await address_of(admin, broker)
        return address, dict(sorted((await admin.broker_info(address)).items()))

    address, values = ask(Link(namesrv, timeout), info)
    if as_json:
        print_json({"brokerName": broker, "address": address, "info": values})
    else:
        print_pairs(values.items())


@app.command(
    "wipe-write",
    epilog="""
Examples:

  cometmq cluster wipe-write broker-a -n 127.0.0.1:9876      before it is taken out of use

  cometmq cluster wipe-write broker-a --yes --json
""",
)
def wipe_write(
    broker: BrokerName,
    yes: Yes = False,
    namesrv: Namesrv = "",
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Have producers send nothing more to a broker; consumers go on reading."""
    link = Link(namesrv, timeout)
    ask(link, lambda admin: address_of(admin, broker))
    confirm(f"Have producers send nothing more to {broker}?", yes=yes)
    count = ask(link, lambda admin: admin.wipe_write_permission(broker))
    _say_changed(broker, count, "takes no messages any more", as_json=as_json)


@app.command(
    "add-write",
    epilog="""
Examples:

  cometmq cluster add-write broker-a -n 127.0.0.1:9876

  cometmq cluster add-write broker-a --json
""",
)
def add_write(
    broker: BrokerName, namesrv: Namesrv = "", timeout: Timeout = TIMEOUT_S, as_json: AsJson = False
) -> None:
    """Let producers send to a broker again."""

    async def add(admin: Admin) -> int:
        await address_of(admin, broker)
        return await admin.add_write_permission(broker)

    count = ask(Link(namesrv, timeout), add)
    _say_changed(broker, count, "takes messages again", as_json=as_json)


def _say_changed(broker: str, count: int, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"brokerName": broker, "topics": count})
    else:
        say(f"{broker} {what}: {count} topics changed; clients know within 30 seconds")
