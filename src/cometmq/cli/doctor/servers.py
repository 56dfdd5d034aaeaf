"""Checks of name servers and brokers: are they there, do they agree, are clock, version and disk right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cometmq.cli.doctor.facts import BrokerFacts, Facts
from cometmq.cli.doctor.finding import Finding, Level
from cometmq.client.admin.results import ClusterInfo
from cometmq.model.java_numbers import natural_int
from cometmq.model.topic import PERM_WRITE

CLOCK_LIMIT_MS: Final = 5_000
DISK_LIMIT: Final = 0.9
EARLY: Final = 0.8
"""Messages that were deleted before this part of their time was over were deleted early."""
_HOUR_MS: Final = 3_600_000


def check_name_servers(facts: Facts) -> Iterator[Finding]:
    """Each name server that clients are given has to answer, and all have to know the same brokers."""
    seen: dict[str, set[tuple[str, int, str]]] = {}
    for address, info in facts.name_servers.items():
        if isinstance(info, ClusterInfo):
            seen[address] = {
                (name, number, where)
                for name, data in info.broker_addr_table.items()
                for number, where in data.broker_addrs.items()
            }
            continue
        yield Finding(
            check="name-server-unreachable",
            level=Level.ERROR,
            subject=address,
            text=f"the name server at {address} does not answer: {info}",
            advice="start it, or take its address away from clients and brokers (namesrvAddr)",
        )
    everything = set().union(*seen.values())
    for address, brokers in seen.items():
        missing = sorted({name for name, _, _ in everything - brokers})
        if missing:
            yield Finding(
                check="name-servers-disagree",
                level=Level.ERROR,
                subject=address,
                text=f"the name server at {address} does not know {', '.join(missing)}, and another one does",
                advice="give those brokers the addresses of all name servers (namesrvAddr)",
            )


def check_takeovers(facts: Facts) -> Iterator[Finding]:
    """A name and an id belong to one address; who registers under them from another one takes the route."""
    found: dict[tuple[str, int], dict[str, int]] = {}
    for info in facts.name_servers.values():
        if not isinstance(info, ClusterInfo):
            continue
        for name, data in info.broker_addr_table.items():
            for number, address in data.broker_addrs.items():
                if facts.cluster in (None, data.cluster):
                    found.setdefault((name, number), {}).setdefault(address, 0)
        for moved in info.takeovers:
            if facts.cluster in (None, moved.cluster):
                addresses = found.setdefault((moved.broker_name, moved.broker_id), {})
                for address in (moved.old_addr, moved.new_addr):
                    addresses[address] = max(addresses.get(address, 0), moved.count)
    for (name, number), addresses in sorted(found.items()):
        if len(addresses) < 2:
            continue
        again = max(addresses.values())
        often = f", {again} times in the last hour" if again > 1 else ""
        yield Finding(
            check="route-takeover",
            level=Level.ERROR if again > 1 else Level.WARNING,
            subject=name,
            text=f"{name} with id {number} is registered from {' and from '.join(sorted(addresses))}{often}: "
            "who registers last gets its clients",
            advice="if both run, give one of them another brokerName or brokerId; if one is not yours, keep "
            "it away from the name servers with a firewall; if the broker moved, or a controller elected "
            "another one, this finding ends an hour after that",
        )


def check_brokers(facts: Facts) -> Iterator[Finding]:
    """Each broker has to be where it is said to be, be the one that it is said to be, and have a master."""
    answered = any(isinstance(info, ClusterInfo) for info in facts.name_servers.values())
    if answered and not facts.brokers:
        yield Finding(
            check="no-broker",
            level=Level.ERROR,
            subject=facts.cluster or "cluster",
            text="no broker is registered with the name servers",
            advice="start one with the addresses of these name servers: cometmq broker -n ADDRS; "
            "if one runs, ask it: cometmq doctor --broker HOST:PORT",
        )
    yield from _strangers(facts)
    for broker in facts.brokers:
        if not broker.is_reachable:
            yield Finding(
                check="broker-unreachable",
                level=Level.ERROR,
                subject=broker.name,
                text=f"{broker.name} is registered at {broker.address}, and cannot be reached there: "
                f"{broker.error}",
                advice="if it runs, set its brokerIP1 (and listenPort) to an address that clients can reach, "
                "which in a container is that of the host, and start it again; else start it",
            )
        yield from _identity(broker)
    with_master = {broker.name for broker in facts.brokers if broker.is_master}
    for name in sorted({broker.name for broker in facts.brokers} - with_master):
        yield Finding(
            check="no-master",
            level=Level.ERROR,
            subject=name,
            text=f"{name} has replicas only, and no master: nothing can be sent to it",
            advice="start its master (brokerId=0) again",
        )


def _strangers(facts: Facts) -> Iterator[Finding]:
    for broker in facts.strangers:
        said = broker.config.get("namesrvAddr")
        if not broker.is_reachable:
            text = f"nothing answers at {broker.address}, and no broker is registered there: {broker.error}"
            advice = "start the broker, or look at its listenPort and bindAddress"
        elif not broker.config:
            text = f"the broker at {broker.address} is registered with none of these name servers"
            advice = "see its log, which says what it cannot reach"
        elif said is None or not said.strip():
            text = f"the broker at {broker.address} runs without a name server, so that no client finds it"
            advice = "set its namesrvAddr to the addresses of these name servers, and start it again"
        else:
            text = (
                f"the broker at {broker.address} runs, and is registered with none of these name servers; it "
                f"tries {said}, as {broker.config.get('brokerIP1')}:{broker.config.get('listenPort')}"
            )
            advice = (
                "if these are the right addresses, its log says why it fails; where name servers take TLS "
                "only, set useTLS=true; if it is registered under another address, name it by that one"
            )
        yield Finding(
            check="broker-unregistered", level=Level.ERROR, subject=broker.address, text=text, advice=advice
        )


def _identity(broker: BrokerFacts) -> Iterator[Finding]:
    said = (broker.config.get("brokerClusterName"), broker.config.get("brokerName"))
    if broker.config and said != (broker.cluster, broker.name):
        yield Finding(
            check="broker-identity",
            level=Level.ERROR,
            subject=broker.name,
            text=f"{broker.address} is registered as {broker.name} of {broker.cluster}, and says that "
            f"it is {said[1]} of {said[0]}",
            advice="two brokers have the same address; give one of them another brokerIP1 or listenPort",
        )


def check_clusters(facts: Facts) -> Iterator[Finding]:
    """The brokers of one set of name servers belong to one cluster, unless only one was asked about."""
    names: dict[str, set[str]] = {}
    for broker in facts.brokers:
        names.setdefault(broker.cluster, set()).add(broker.name)
    if len(names) < 2:
        return
    main = max(sorted(names), key=lambda cluster: len(names[cluster]))
    for cluster in sorted(set(names) - {main}):
        yield Finding(
            check="foreign-cluster",
            level=Level.WARNING,
            subject=cluster,
            text=f"{', '.join(sorted(names[cluster]))} belongs to cluster {cluster}, and the other brokers "
            f"({', '.join(sorted(names[main]))}) to {main}: clients see the topics of both",
            advice="if that is not meant, set its brokerClusterName or namesrvAddr right; "
            f"if it is, look at one with: cometmq doctor --cluster {main}",
        )


def check_clocks(facts: Facts) -> Iterator[Finding]:
    """Delays, retention and searching by time go by the clocks of brokers."""
    for broker in facts.brokers:
        ahead_ms = broker.clock_ahead_ms
        if ahead_ms is not None and abs(ahead_ms) > CLOCK_LIMIT_MS:
            way = "ahead of" if ahead_ms > 0 else "behind"
            yield Finding(
                check="clock",
                level=Level.WARNING,
                subject=broker.name,
                text=f"the clock of {broker.name} is {abs(ahead_ms) // 1000} s {way} that of this machine",
                advice="have both set by a time service (NTP)",
            )


def check_versions(facts: Facts) -> Iterator[Finding]:
    """Different versions in one cluster are for the time of an upgrade."""
    versions: dict[str, list[str]] = {}
    for broker in facts.brokers:
        if broker.info.get("brokerVersionDesc"):
            versions.setdefault(broker.info["brokerVersionDesc"], []).append(broker.name)
    if len(versions) > 1:
        listed = "; ".join(f"{version}: {', '.join(names)}" for version, names in sorted(versions.items()))
        yield Finding(
            check="versions",
            level=Level.WARNING,
            subject=facts.cluster or "cluster",
            text=f"the brokers have different versions ({listed})",
            advice="bring all to the same version when the upgrade is over",
        )


def check_disks(facts: Facts, now_ms: int) -> Iterator[Finding]:
    """A full disk ends in refused messages, or in messages that are deleted before their time."""
    for broker in facts.brokers:
        used = max(_number(broker, "commitLogDiskRatio"), _number(broker, "consumeQueueDiskRatio"))
        if used > DISK_LIMIT:
            yield Finding(
                check="disk",
                level=Level.ERROR,
                subject=broker.name,
                text=f"the disk of {broker.name} is {used:.0%} full",
                advice="make room, or keep messages for a shorter time: "
                f"cometmq config set fileReservedTime=HOURS --broker {broker.name}",
            )
        yield from _retention(broker, now_ms)


def _retention(broker: BrokerFacts, now_ms: int) -> Iterator[Finding]:
    reserved_ms = (natural_int(broker.config.get("fileReservedTime")) or 0) * _HOUR_MS
    earliest_ms = _number(broker, "earliestMessageTimeStamp")
    if _number(broker, "commitLogMinOffset") <= 0 or earliest_ms <= 0 or reserved_ms <= 0:
        return  # nothing was deleted yet
    kept_ms = now_ms - earliest_ms
    if kept_ms < reserved_ms * EARLY:
        yield Finding(
            check="retention",
            level=Level.WARNING,
            subject=broker.name,
            text=f"{broker.name} has messages of the last {kept_ms / _HOUR_MS:.1f} hours only, and is set "
            f"to keep {reserved_ms / _HOUR_MS:.0f}",
            advice="the disk is too small for that time: give it a larger one, or set fileReservedTime "
            "to what it can hold",
        )


def check_set_aside(facts: Facts) -> Iterator[Finding]:
    """A message that a broker could not deliver is still in its store, and somebody should know of it."""
    for broker in facts.brokers:
        count = _number(broker, "setAsideRecords")
        if count >= 1:
            yield Finding(
                check="set-aside-records",
                level=Level.WARNING,
                subject=broker.name,
                text=f"{broker.name} could not process {count:.0f} records since its start, "
                "and has set them aside",
                advice="look at them where the broker runs: cometmq store set-aside DIR",
            )


def check_permissions(facts: Facts) -> Iterator[Finding]:
    """What a broker would take has to be offered to producers by the name servers."""
    for broker in facts.masters:
        permission = broker.config.get("brokerPermission", "6")
        bits = natural_int(permission)
        if bits is not None and not bits & PERM_WRITE:
            yield Finding(
                check="read-only",
                level=Level.WARNING,
                subject=broker.name,
                text=f"{broker.name} takes no messages: its brokerPermission is {permission}",
                advice=f"if that is over: cometmq config set brokerPermission=6 --broker {broker.name}",
            )
            continue
        wiped = [
            topic
            for topic, config in sorted(broker.topics.items())
            if config.perm & PERM_WRITE and topic in facts.routes
            for queues in facts.routes[topic].queue_datas
            if queues.broker_name == broker.name and not queues.perm & PERM_WRITE
        ]
        if wiped:
            yield Finding(
                check="write-permission-wiped",
                level=Level.WARNING,
                subject=broker.name,
                text=f"producers send nothing to {broker.name}: by the name servers {len(wiped)} of its "
                "topics cannot be written, and the broker itself would take them",
                advice=f"if it is to be used again: cometmq cluster add-write {broker.name}",
            )


def _number(broker: BrokerFacts, name: str) -> float:
    try:
        return float(broker.info.get(name, "0"))
    except ValueError:
        return 0.0
