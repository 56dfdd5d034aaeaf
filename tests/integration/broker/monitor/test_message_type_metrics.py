"""What `/metrics` says about transactions, timers and pops, under Apache's names."""

from __future__ import annotations

from collections.abc import Mapping

from cometmq.broker.monitor.exporter import BrokerExporter
from cometmq.wire.codes import RequestCode
from tests.answers import now_ms
from tests.integration.broker.broker_kit import ID, BrokerKit, running_broker
from tests.integration.broker.message_types_kit import COMMIT, ROLLBACK, Producer, half_of, transaction
from tests.integration.broker.pop.pop_kit import QUICK, Consumer, filled
from tests.waiting import eventually

NODE = {"cluster": "DefaultCluster", "node_id": "embedded", "node_type": "broker"}
BOUNDS_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
STORAGE = {"storage_type": "local", "storage_medium": "disk"}


def scrape(kit: BrokerKit) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """All samples by name and labels."""
    exporter = BrokerExporter(kit.broker.context, kit.broker.server.metrics)
    return {
        (each.name, frozenset(each.labels.items())): each.value
        for metric in exporter.collect()
        for each in metric.samples
    }


def value(kit: BrokerKit, name: str, labels: Mapping[str, str] = {}) -> float | None:
    stored = ("rocketmq_timer_", "rocketmq_timing_", "rocketmq_delay_")
    node = {**NODE, **STORAGE} if name.startswith(stored) else NODE
    return scrape(kit).get((name, frozenset({**node, **labels}.items())))


async def test_transactions_are_counted_by_topic() -> None:
    """B6, B13: open ones, ended ones, and checks."""
    settings = {"transactionCheckInterval": "50", "transactionTimeOut": "100", "transactionCheckMax": "2"}
    async with running_broker(settings=settings) as kit, Producer(kit) as producer:
        for number, outcome in enumerate((COMMIT, COMMIT, ROLLBACK, None)):
            answer = await kit.send(sys_flag=4, born_timestamp=now_ms(), properties=transaction(f"{number}"))
            if outcome is not None:
                await producer.end(half_of(answer), outcome)
        orders = {"topic": "Orders"}
        assert value(kit, "rocketmq_commit_messages_total", orders) == 2
        assert value(kit, "rocketmq_rollback_messages_total", orders) == 1
        assert value(kit, "rocketmq_finish_message_latency_milliseconds_count", orders) == 2
        at_once = {**orders, "le": "5.0"}
        assert value(kit, "rocketmq_finish_message_latency_milliseconds_bucket", at_once) == 2
        assert value(kit, "rocketmq_half_messages", orders) in (0, 1)
        await eventually(
            lambda: value(kit, "cometmq_given_up_transactions_total") == 1, "the open one is given up"
        )
        assert value(kit, "cometmq_transaction_checks_total") == 2
        assert value(kit, "rocketmq_half_messages", orders) == 0


async def test_timers_are_counted() -> None:
    """B6, B13: those that wait, were set, delivered and taken back, and how late they are."""
    async with running_broker(settings={**QUICK, "recallMessageEnable": "true"}) as kit:
        for number, delay_ms in enumerate((300, 600_000)):
            properties = {"UNIQ_KEY": f"{ID}{number}", "TIMER_DELAY_MS": str(delay_ms)}
            assert (await kit.send(properties=properties, born_timestamp=now_ms())).code == 0
        await eventually(lambda: value(kit, "rocketmq_timer_enqueue_total") == 2, "both are set")
        await eventually(lambda: value(kit, "rocketmq_timer_dequeue_total") == 1, "one is delivered")
        assert value(kit, "rocketmq_timing_messages", {"topic": "Orders"}) == 1
        assert value(kit, "rocketmq_timer_dequeue_lag") == 1
        assert value(kit, "rocketmq_timer_enqueue_lag") == 0
        assert value(kit, "rocketmq_timer_enqueue_latency_milliseconds") == 0
        spans = [value(kit, "rocketmq_timer_message_snapshot", {"timer_bound_s": str(s)}) for s in BOUNDS_S]
        assert spans == [0, 0, 0, 1, 0, 0, 0, 0]
        delays = "rocketmq_delay_message_latency_seconds_bucket"
        counts = [value(kit, delays, {"topic": "Orders", "le": le}) for le in ("60.0", "600.0", "+Inf")]
        assert counts == [1, 2, 2]
        assert value(kit, "cometmq_cancelled_timers_total") == 0
        late_ms = value(kit, "rocketmq_timer_dequeue_latency_milliseconds")
        assert late_ms is not None
        assert 0 <= late_ms < 30_000


async def test_pops_are_counted() -> None:
    """B12, B13: checkpoints and acknowledgements, written and read, and what came back."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, [b"done", b"lost"])
        consumer = Consumer(kit)
        done = (await consumer.pop(1, invisible_ms=1500)).messages
        await consumer.ack(done[0])
        await consumer.pop(1, invisible_ms=1500)
        checkpoints, acks = ({"revive_message_type": kind} for kind in ("CK", "ACK"))
        assert value(kit, "rocketmq_pop_revive_in_message_total", checkpoints) == 2
        assert value(kit, "rocketmq_pop_revive_in_message_total", acks) == 1
        await eventually(lambda: value(kit, "rocketmq_pop_revive_retry_messages_total") == 1, "one is back")
        assert value(kit, "rocketmq_pop_revive_out_message_total", checkpoints) == 2
        lags = [("rocketmq_pop_revive_lag_milliseconds", {"queue_id": str(number)}) for number in range(8)]
        await eventually(lambda: all(value(kit, *lag) == 0 for lag in lags), "everything is done")
        assert value(kit, "rocketmq_pop_revive_latency_milliseconds", {"queue_id": "7"}) == 0


async def test_a_rollback_of_pops_finds_everything_where_it_belongs() -> None:
    """B12: Apache's request to bring what was popped into the revive topic, where it is here anyway."""
    async with running_broker() as kit:
        answer = await kit.call(RequestCode.POP_ROLLBACK)
        assert (answer.code, answer.remark) == (0, None)
