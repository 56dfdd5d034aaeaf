"""Checks of name servers and brokers: reachability, registration, clock, version, disk, permissions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cometmq.cli.admin.cluster import info_number
from cometmq.cli.doctor.facts import BrokerFacts, Facts, Finding, Level, error, warning
from cometmq.client.admin.results import ClusterInfo
from cometmq.model.java_numbers import natural_int
from cometmq.model.topic import PERM_WRITE

CLOCK_LIMIT_MS: Final = 5_000
DISK_LIMIT: Final = 0.9
EARLY: Final = 0.8
"""Messages deleted before this share of their retention time were deleted early."""
_HOUR_MS: Final = 3_600_000


def check_name_servers(facts: Facts) -> Iterator[Finding]:
    """All name servers have to answer, and to know the same brokers."""
    seen: dict[str, set[tuple[str, int, str]]] = {}
    for address, info in facts.name_servers.items():
        if isinstance(info, ClusterInfo):
            seen[address] = {
                (name, number, where)
                for name, data in info.broker_addr_table.items()
                for number, where in data.broker_addrs.items()
            }
            continue
        yield error(
            "name-server-unreachable",
            address,
            f"the name server at {address} does not answer: {info}",
            "start it, or take its address away from clients and brokers (namesrvAddr)",
        )
    everything = set().union(*seen.values())
    for address, brokers in seen.items():
        missing = sorted({name for name, _, _ in everything - brokers})
        if missing:
            yield error(
                "name-servers-disagree",
                address,
                f"the name server at {address} does not know {', '.join(missing)}, and another one does",
                "give those brokers the addresses of all name servers (namesrvAddr)",
            )


def check_takeovers(facts: Facts) -> Iterator[Finding]:
    """A broker name and id belong to one address; a registration from another one takes the route over."""
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
            "route-takeover",
            Level.ERROR if again > 1 else Level.WARNING,
            name,
            f"{name} with id {number} is registered from {' and from '.join(sorted(addresses))}{often}: "
            "who registers last gets its clients",
            "if both run, give one of them another brokerName or brokerId; if one is not yours, keep "
            "it away from the name servers with a firewall; if the broker moved, or a controller elected "
            "another one, this finding ends an hour after that",
        )


def check_brokers(facts: Facts) -> Iterator[Finding]:
    """A broker has to answer at its registered address, as the registered broker, and to have a master."""
    answered = any(isinstance(info, ClusterInfo) for info in facts.name_servers.values())
    if answered and not facts.brokers:
        yield error(
            "no-broker",
            facts.cluster or "cluster",
            "no broker is registered with the name servers",
            "start one with the addresses of these name servers: cometmq broker -n ADDRS; "
            "if one runs, ask it: cometmq doctor --broker HOST:PORT",
        )
    yield from _strangers(facts)
    for broker in facts.brokers:
        if not broker.is_reachable:
            yield error(
                "broker-unreachable",
                broker.name,
                f"{broker.name} is registered at {broker.address}, and cannot be reached there: "
                f"{broker.error}",
                "if it runs, set its brokerIP1 (and listenPort) to an address that clients can reach, "
                "which in a container is that of the host, and start it again; else start it",
            )
        yield from _identity(broker)
    with_master = {broker.name for broker in facts.brokers if broker.is_master}
    for name in sorted({broker.name for broker in facts.brokers} - with_master):
        yield error(
            "no-master",
            name,
            f"{name} has replicas only, and no master: nothing can be sent to it",
            "start its master (brokerId=0) again",
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
        yield error("broker-unregistered", broker.address, text, advice)


def _identity(broker: BrokerFacts) -> Iterator[Finding]:
    said = (broker.config.get("brokerClusterName"), broker.config.get("brokerName"))
    if broker.config and said != (broker.cluster, broker.name):
        yield error(
            "broker-identity",
            broker.name,
            f"{broker.address} is registered as {broker.name} of {broker.cluster}, and says that "
            f"it is {said[1]} of {said[0]}",
            "two brokers have the same address; give one of them another brokerIP1 or listenPort",
        )


def check_clusters(facts: Facts) -> Iterator[Finding]:
    """All brokers of the name servers belong to one cluster, unless --cluster names one."""
    names: dict[str, set[str]] = {}
    for broker in facts.brokers:
        names.setdefault(broker.cluster, set()).add(broker.name)
    if len(names) < 2:
        return
    main = max(sorted(names), key=lambda cluster: len(names[cluster]))
    for cluster in sorted(set(names) - {main}):
        yield warning(
            "foreign-cluster",
            cluster,
            f"{', '.join(sorted(names[cluster]))} belongs to cluster {cluster}, and the other brokers "
            f"({', '.join(sorted(names[main]))}) to {main}: clients see the topics of both",
            "if that is not meant, set its brokerClusterName or namesrvAddr right; "
            f"if it is, look at one with: cometmq doctor --cluster {main}",
        )


def check_clocks(facts: Facts) -> Iterator[Finding]:
    """Delays, retention and search by time depend on the clocks of brokers."""
    for broker in facts.brokers:
        ahead_ms = broker.clock_ahead_ms
        if ahead_ms is not None and abs(ahead_ms) > CLOCK_LIMIT_MS:
            way = "ahead of" if ahead_ms > 0 else "behind"
            yield warning(
                "clock",
                broker.name,
                f"the clock of {broker.name} is {abs(ahead_ms) // 1000} s {way} that of this machine",
                "have both set by a time service (NTP)",
            )


def check_versions(facts: Facts) -> Iterator[Finding]:
    """Brokers of different versions are expected during an upgrade only."""
    versions: dict[str, list[str]] = {}
    for broker in facts.brokers:
        if broker.info.get("brokerVersionDesc"):
            versions.setdefault(broker.info["brokerVersionDesc"], []).append(broker.name)
    if len(versions) > 1:
        listed = "; ".join(f"{version}: {', '.join(names)}" for version, names in sorted(versions.items()))
        yield warning(
            "versions",
            facts.cluster or "cluster",
            f"the brokers have different versions ({listed})",
            "bring all to the same version when the upgrade is over",
        )


def check_disks(facts: Facts, now_ms: int) -> Iterator[Finding]:
    """A full disk leads to refused messages, or to messages deleted before their time."""
    for broker in facts.brokers:
        if trouble := broker.info.get("storeTrouble"):
            reason, _, advice = trouble.partition("; ")
            yield error(
                "store", broker.name, f"{broker.name} refuses messages: {reason}", advice or "see its log"
            )
        used = max(
            info_number(broker.info, "commitLogDiskRatio"), info_number(broker.info, "consumeQueueDiskRatio")
        )
        if used > DISK_LIMIT:
            yield error(
                "disk",
                broker.name,
                f"the disk of {broker.name} is {used:.0%} full",
                "make room, or keep messages for a shorter time: "
                f"cometmq config set fileReservedTime=HOURS --broker {broker.name}",
            )
        yield from _retention(broker, now_ms)


def _retention(broker: BrokerFacts, now_ms: int) -> Iterator[Finding]:
    reserved_ms = (natural_int(broker.config.get("fileReservedTime")) or 0) * _HOUR_MS
    earliest_ms = info_number(broker.info, "earliestMessageTimeStamp")
    if info_number(broker.info, "commitLogMinOffset") <= 0 or earliest_ms <= 0 or reserved_ms <= 0:
        return  # nothing was deleted yet
    kept_ms = now_ms - earliest_ms
    if kept_ms < reserved_ms * EARLY:
        yield warning(
            "retention",
            broker.name,
            f"{broker.name} has messages of the last {kept_ms / _HOUR_MS:.1f} hours only, and is set "
            f"to keep {reserved_ms / _HOUR_MS:.0f}",
            "the disk is too small for that time: give it a larger one, or set fileReservedTime "
            "to what it can hold",
        )


def check_set_aside(facts: Facts) -> Iterator[Finding]:
    """A record that a broker set aside is still in its store."""
    for broker in facts.brokers:
        count = info_number(broker.info, "setAsideRecords")
        if count >= 1:
            yield warning(
                "set-aside-records",
                broker.name,
                f"{broker.name} could not process {count:.0f} records since its start, "
                "and has set them aside",
                "look at them where the broker runs: cometmq store set-aside DIR",
            )


def check_permissions(facts: Facts) -> Iterator[Finding]:
    """Name servers have to offer producers all topics that a broker accepts."""
    for broker in facts.masters:
        permission = broker.config.get("brokerPermission", "6")
        bits = natural_int(permission)
        if bits is not None and not bits & PERM_WRITE:
            yield warning(
                "read-only",
                broker.name,
                f"{broker.name} takes no messages: its brokerPermission is {permission}",
                f"if that is over: cometmq config set brokerPermission=6 --broker {broker.name}",
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
            yield warning(
                "write-permission-wiped",
                broker.name,
                f"producers send nothing to {broker.name}: by the name servers {len(wiped)} of its "
                "topics cannot be written, and the broker itself would take them",
                f"if it is to be used again: cometmq cluster add-write {broker.name}",
            )
