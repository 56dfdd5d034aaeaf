"""Files of a store that cannot be read: what is derived is made again, all else stops a start clearly.

B5: nothing that cannot be read is ever taken for an empty table.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.model.errors import StoreError
from cometmq.model.names import TIMER_TOPIC, TRANS_HALF_TOPIC
from tests.integration.broker.broker_kit import DELAYS, ID, BrokerKit, running_broker
from tests.integration.broker.message_types_kit import transaction
from tests.integration.broker.pop.pop_kit import QUICK
from tests.waiting import eventually

SETTINGS = {**QUICK, **DELAYS}


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def noise(path: Path) -> None:
    path.write_bytes(random.Random(7).randbytes(len(path.read_bytes()) or 100))


def wrong_types(path: Path) -> None:
    path.write_bytes(
        b'{"dataVersion":7,"timingCount":[1],"transactionCount":"x","offsetTable":"x","lanes":3}'
    )


def no_object(path: Path) -> None:
    path.write_bytes(b"[[[]]]")


def folder(path: Path) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


Harm = Callable[[Path], None]
ALL: list[Harm] = [empty, half, noise, wrong_types, no_object, folder]


async def filled(root: Path) -> None:
    """A store with messages that wait for their time, an open transaction, and one for each other kind."""
    async with running_broker(root, SETTINGS) as kit:
        await kit.send(body=b"plain")
        kit.broker.context.groups.find("billing")
        await kit.send(body=b"timed", properties={"UNIQ_KEY": ID, "TIMER_DELAY_MS": "3600000"})
        await kit.send(body=b"delayed", properties={"UNIQ_KEY": ID, "DELAY": "1"})
        await kit.send(body=b"half", properties=transaction("open"))
        await eventually(lambda: kit.broker.context.timers.enqueuer.taken == 1, "it is in the wheel")
        await eventually(lambda: len(kit.stored("Orders")) == 2, "the delayed one comes")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template") / "broker"
    asyncio.run(filled(root))
    return root


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    """The folder of a broker that was stopped; its store is in `store`."""
    return Path(shutil.copytree(template, tmp_path / "broker"))


def harm(path: Path, how: Harm, *, backup: bool = True) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}")
    how(path)
    spare = path.with_name(path.name + ".bak")
    if backup and spare.exists():
        how(spare)


async def everything_goes_on(kit: BrokerKit) -> None:
    key = ID[:-1] + "F"  # what waits in the store may come due meanwhile, and has another one
    for properties in ({"TIMER_DELAY_MS": "200"}, {"DELAY": "1"}):
        assert (await kit.send(properties={"UNIQ_KEY": key, **properties})).code == 0
    await eventually(
        lambda: [each.properties()["UNIQ_KEY"] for each in kit.stored("Orders")].count(key) == 2,
        "timers and delays go on",
    )


@pytest.mark.parametrize("how", ALL)
@pytest.mark.parametrize(
    "name",
    [
        "config/timermetrics",
        "config/transactionMetrics",
        "config/consumerFilter.json",
        "config/setAsideRecords.json",
        "config/exactlyOnce.json",
    ],
)
async def test_tables_that_are_derived_are_made_again(store: Path, name: str, how: Harm) -> None:
    """B5: numbers for people are counted anew, and all else is found out again."""
    path = store / "store" / name
    harm(path, how)
    async with running_broker(store, SETTINGS) as kit:
        context = kit.broker.context
        await everything_goes_on(kit)
        await eventually(lambda: not context.timers.recount.is_running, "counted")
        assert context.timers.counts.counts["Orders"].count == 1
        assert context.transactions.counts.counts["Orders"].count == 1
        assert len(kit.stored(TRANS_HALF_TOPIC)) == 1
    async with running_broker(store, SETTINGS) as kit:  # and what was saved is whole again
        assert kit.broker.context.timers.counts.counts["Orders"].count == 1
        assert kit.broker.context.transactions.counts.counts["Orders"].count == 1


@pytest.mark.parametrize("how", [empty, half, folder])
async def test_a_timer_wheel_is_made_again_from_the_timer_log(store: Path, how: Harm) -> None:
    """B6: what waits in it is still there, and comes once."""
    harm(store / "store" / "timerwheel", how)
    async with running_broker(store, SETTINGS) as kit:
        (waiting,) = kit.stored(TIMER_TOPIC)
        slot_ms = int(waiting.properties()["TIMER_OUT_MS"])
        assert kit.broker.context.timers.count_at(slot_ms) == 1
        await everything_goes_on(kit)


@pytest.mark.parametrize("how", [empty, half, folder])
async def test_a_checkpoint_of_the_store_is_made_again(store: Path, how: Harm) -> None:
    """B5: it only says how much of the log need not be read again."""
    harm(store / "store" / "checkpoint", how)
    async with running_broker(store, SETTINGS) as kit:
        await everything_goes_on(kit)


@pytest.mark.parametrize("how", [half, noise, wrong_types, no_object, folder])
@pytest.mark.parametrize(
    "name", ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"]
)
async def test_what_is_not_derived_is_read_from_its_back_up(store: Path, name: str, how: Harm) -> None:
    """B5: RocketMQ's `.bak` beside it."""
    path = store / "store" / "config" / name
    shutil.copy(path, path.with_name(path.name + ".bak"))
    if name == "delayOffset.json" and how is wrong_types:
        path.write_bytes(b'{"offsetTable":"x"}')
    else:
        harm(path, how, backup=False)
    async with running_broker(store, SETTINGS) as kit:
        await everything_goes_on(kit)
        assert kit.broker.context.delays.offsets[1] >= 1


@pytest.mark.parametrize("how", [half, noise, no_object, folder])
@pytest.mark.parametrize(
    "name", ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"]
)
async def test_what_is_not_derived_and_has_no_back_up_stops_a_start_with_a_sentence(
    store: Path, name: str, how: Harm
) -> None:
    """B5: it names the file, and says what can be done."""
    path = store / "store" / "config" / name
    harm(path, how)
    with pytest.raises(StoreError, match=f"{name}.*cannot be read|{name}.* nor .*repair") as stopped:
        async with running_broker(store, SETTINGS):
            pass
    assert "repair" in stopped.value.message
    assert "move" in stopped.value.message


@pytest.mark.parametrize("how", [half, noise, folder])
async def test_a_timer_checkpoint_that_cannot_be_is_named(store: Path, how: Harm) -> None:
    """B6: only it knows how far timers were delivered."""
    path = store / "store" / "config" / "timercheck"
    if how is half:
        path.write_bytes(path.read_bytes()[:10])
    else:
        harm(path, how, backup=False)
    with pytest.raises(StoreError, match=r"timercheck.*move"):
        async with running_broker(store, SETTINGS):
            pass
