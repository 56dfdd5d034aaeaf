"""Timed messages, open transactions and popped messages pass between Apache's broker and ours, both ways.

One broker takes them and ends, in good order or by a kill; the other one goes on with its files; the first
one gets them back. All stories are told at the same time, because most of each is waiting.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from tests.compat.apache import ApacheBroker, CometBroker, CometNamesrv
from tests.compat.store.handover import MESSAGES, TRANSACTED, Kind, Pop, Story, told_story

LATE_MS = 10_000
"""How much later than due a broker may deliver here, or after its start: it may be busy with starting."""

WAYS: dict[str, tuple[Kind, Kind]] = {
    "from Apache's to ours": (ApacheBroker, CometBroker),
    "from ours to Apache's": (CometBroker, ApacheBroker),
}
ENDS = {"after a stop": False, "after a kill": True}

Stories = dict[tuple[str, str], Story | BaseException]

# The first test waits for all stories.
pytestmark = pytest.mark.timeout(400)


async def told_stories(folder: Path, namesrv: str) -> Stories:
    names = [(way, end) for way in WAYS for end in ENDS]
    stories = await asyncio.gather(
        *(
            told_story(folder / str(number), namesrv, *WAYS[way], kill=ENDS[end])
            for number, (way, end) in enumerate(names)
        ),
        return_exceptions=True,
    )
    return dict(zip(names, stories, strict=True))


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Stories:
    folder = tmp_path_factory.mktemp("handover")
    with CometNamesrv(folder / "namesrv") as namesrv:
        return asyncio.run(told_stories(folder, namesrv.address))


@pytest.fixture(params=ENDS)
def end(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=WAYS)
def story(request: pytest.FixtureRequest, stories: Stories, end: str) -> Story:
    told = stories[str(request.param), end]
    if isinstance(told, BaseException):
        raise AssertionError(f"the story has no end: {told!r}") from told
    return told


def test_timed_messages_are_delivered_by_the_broker_that_runs_then(story: Story, end: str) -> None:
    """B4, B6: each once and at its time, whoever took it; what was taken back does not come."""
    stored_ms: dict[bytes, int] = {}
    for record in story.timed:
        stored_ms.setdefault(bytes(record.body), record.store_timestamp_ms)
    if end == "after a kill":
        # A broker may be killed before it has noted what it delivered in the last second.
        assert stored_ms.keys() == story.due_ms.keys()
    else:
        assert Counter(bytes(record.body) for record in story.timed) == Counter(list(story.due_ms))
    for body, due_ms in story.due_ms.items():
        assert stored_ms[body] >= due_ms, body
        turn = sum(begun_ms <= stored_ms[body] for begun_ms in story.begun_ms)
        ready_ms = story.started_ms[turn - 1]
        assert stored_ms[body] <= max(due_ms, ready_ms) + LATE_MS, body


def test_open_transactions_are_finished_by_the_broker_that_follows(story: Story, end: str) -> None:
    """B4, B6: it asks about those that are open, and not about those that have ended."""
    assert story.asked == [set(), {"open", "doubtful"}, {"doubtful"}]
    assert story.asked_topics == {TRANSACTED}
    seen = [[b"ended"], [b"ended", b"open"], [b"doubtful", b"ended", b"open"]]
    if end == "after a kill":
        # A broker writes a half message again before it asks, and may be killed before it has noted that.
        assert [sorted(set(bodies)) for bodies in story.transacted] == seen
    else:
        assert story.transacted == seen


def test_popped_messages_come_back_from_the_broker_that_follows(story: Story, end: str) -> None:
    """B4, B12: those that were not acknowledged, when their time is over; those that were, never."""
    by_body: dict[bytes, list[Pop]] = defaultdict(list)
    for pop in story.pops:
        by_body[pop.body].append(pop)
    assert sorted(by_body) == sorted(story.done) == MESSAGES
    for body, pops in by_body.items():
        assert pops[-1].turn == story.done[body], f"{body!r} came after it was acknowledged"
        if end == "after a kill":
            # A broker may be killed before it has noted that it brought a message back, and the next one
            # brings it back again: then there are two of it.
            pops = list({pop.turn: pop for pop in reversed(pops)}.values())[::-1]
        for earlier, later in pairwise(pops):
            assert later.pop_time_ms >= earlier.pop_time_ms + earlier.invisible_ms, body
    popped_in = {body: {pop.turn for pop in pops} for body, pops in by_body.items()}
    assert all(popped_in[body] == {1} for body in (*MESSAGES[:2], *MESSAGES[4:8]))
    assert {1, 2} <= popped_in[MESSAGES[2]]
    assert {1, 2, 3} <= popped_in[MESSAGES[3]]
    assert {1, 3} <= popped_in[MESSAGES[8]]
    assert popped_in[MESSAGES[9]] == {1, 2}
    assert popped_in[MESSAGES[10]] == {2}
    assert popped_in[MESSAGES[11]] == {2, 3}
