"""Checks of topics: presence on all brokers, and skew between queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cometmq.cli.doctor.facts import Facts, Finding, warning

HOT_AT_LEAST: Final = 1_000
"""A topic with fewer messages in its busiest queue is not judged."""
HOT_TIMES: Final = 5
"""A hot queue has this many times the others' average."""


def check_placement(facts: Facts) -> Iterator[Finding]:
    """A topic on some brokers of a cluster only is lost with them, and does not spread the load."""
    clusters: dict[str, list[str]] = {}
    for broker in facts.masters:
        clusters.setdefault(broker.cluster, []).append(broker.name)
    for topic in facts.user_topics():
        having = {broker.name: broker.cluster for broker in facts.masters if topic in broker.topics}
        for cluster in sorted(set(having.values())):
            missing = sorted(set(clusters[cluster]) - having.keys())
            if missing:
                there = sorted(name for name, where in having.items() if where == cluster)
                yield warning(
                    "topic-placement",
                    topic,
                    f"topic {topic} is on {', '.join(there)}, and not on {', '.join(missing)}",
                    "make it there, too: "
                    f"cometmq topic update {topic} --broker {missing[0]} --queues {_queues(facts, topic)}",
                )


def _queues(facts: Facts, topic: str) -> int:
    return max(broker.topics[topic].write_queue_nums for broker in facts.masters if topic in broker.topics)


def check_skew(facts: Facts) -> Iterator[Finding]:
    """A queue with most of the messages gives one consumer most of the work."""
    for topic, status in facts.statuses.items():
        counts = {queue: each.max_offset - each.min_offset for queue, each in status.items()}
        if len(counts) < 2:
            continue
        hot = max(counts, key=lambda queue: counts[queue])
        others = (sum(counts.values()) - counts[hot]) / (len(counts) - 1)
        if counts[hot] >= HOT_AT_LEAST and counts[hot] > HOT_TIMES * others:
            yield warning(
                "hot-queue",
                topic,
                f"queue {hot.queue_id} of topic {topic} on {hot.broker_name} has {counts[hot]} "
                f"messages, and the other {len(counts) - 1} have {others:.0f} on average",
                "see what chooses the queue: a sharding key with one common value, or a producer that "
                "always names the same queue",
            )
