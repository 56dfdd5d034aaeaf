"""`cometmq doctor`: examine a running cluster from a client's side.

Rules kept here:
- It changes nothing on any server.
- A healthy cluster gets one line and exit code 0. Every finding has advice, and makes the exit code 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cometmq.cli.commands import single_app
from cometmq.cli.common.connect import NO_LINK, AsJson, Cluster, Link, ask
from cometmq.cli.common.output import FAILED, counted, note, print_json, say
from cometmq.cli.common.times import duration, now_ms

if TYPE_CHECKING:
    from cometmq.cli.doctor.facts import Facts, Finding
    from cometmq.client.admin.admin import Admin


def examine_cluster(
    cluster: Cluster = None,
    sample: Annotated[
        float,
        typer.Option(
            "--sample",
            help="Time between two measurements of a lag.",
            metavar="DURATION",
            parser=duration(0.1),
            show_default="6s",
        ),
    ] = 6.0,
    behind: Annotated[
        float,
        typer.Option(
            "--behind",
            help="Report a group whose oldest message waits longer.",
            metavar="DURATION",
            parser=duration(),
            show_default="1m",
        ),
    ] = 60.0,
    limit: Annotated[
        int, typer.Option("--limit", help="Maximum number of topics, and of groups.", min=1)
    ] = 500,
    broker: Annotated[
        list[str] | None,
        typer.Option(
            "--broker", help="Also ask the broker at this address; may be repeated.", metavar="HOST:PORT"
        ),
    ] = None,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Examine a cluster.

    Examples:
      cometmq doctor -n '10.0.0.1:9876;10.0.0.2:9876'
      cometmq doctor --broker 10.0.0.11:10911  # is this broker registered?
      cometmq doctor --cluster DefaultCluster --json | jq '.findings[].text'

    Run it where your clients run: what they cannot reach, it cannot reach either. The exit code is 0 if
    nothing was found, and 1 otherwise. A lag is measured twice, --sample apart.
    """

    async def work(admin: Admin) -> tuple[Facts, list[Finding]]:
        return await examine(
            admin, cluster, sample_s=sample, behind_s=behind, limit=limit, addresses=broker or []
        )

    facts, findings = ask(link, work)
    if as_json:
        print_json({"healthy": not findings, "findings": findings, **_counts(facts), "notes": facts.notes})
    else:
        _show(facts, findings)
    if findings:
        raise typer.Exit(FAILED)


async def examine(
    admin: Admin,
    cluster: str | None = None,
    *,
    sample_s: float,
    behind_s: float,
    limit: int,
    addresses: Sequence[str] = (),
) -> tuple[Facts, list[Finding]]:
    """Gather facts and run all checks."""
    from cometmq.cli.doctor import facts as facts_module
    from cometmq.cli.doctor import groups, servers, topics

    facts = await facts_module.gather(admin, cluster, limit, addresses)
    findings = [
        *servers.check_name_servers(facts),
        *servers.check_takeovers(facts),
        *servers.check_brokers(facts),
        *servers.check_clusters(facts),
        *servers.check_clocks(facts),
        *servers.check_versions(facts),
        *servers.check_disks(facts, now_ms()),
        *servers.check_set_aside(facts),
        *servers.check_permissions(facts),
        *topics.check_placement(facts),
        *topics.check_skew(facts),
        *groups.check_subscriptions(facts),
        *await groups.check_lag(admin, facts, sample_s=sample_s, behind_s=behind_s),
    ]
    return facts, sorted(findings, key=lambda finding: finding.level)  # errors before warnings


def _counts(facts: Facts) -> dict[str, int]:
    return {
        "nameServers": len(facts.name_servers),
        "brokers": len(facts.brokers),
        "topics": len(facts.statuses),
        "groups": len(facts.groups),
    }


def _show(facts: Facts, findings: list[Finding]) -> None:
    for finding in findings:
        colour = "red" if finding.level == "error" else "yellow"
        say(f"{finding.level}: {finding.text}", colour=colour)
        say(f"  what to do: {finding.advice}")
    for each in facts.notes:
        note(each)
    counts = _counts(facts)
    looked = (
        f"{counted(counts['nameServers'], 'name server')}, {counted(counts['brokers'], 'broker')}, "
        f"{counted(counts['topics'], 'topic')} and {counted(counts['groups'], 'group')}"
    )
    found = counted(len(findings), "finding")
    say(f"{found} in {looked}" if findings else f"healthy: {looked}")


app = single_app("doctor", examine_cluster)
