"""How far lanes are: what is taken, what is not, and what the log says of them (D2)."""

from __future__ import annotations

import pytest

from cometmq.broker.send import exactly_once as module
from cometmq.broker.send.exactly_once import IDLE_MS, OnceRefused, WriterSequence, WriterSequences
from cometmq.wire.exactly_once import NO_BATCH, UNKNOWN_DIGEST, OnceStep, read_step


def step(batch: int, first: int, count: int, digest: int = 7) -> OnceStep:
    return OnceStep("q", batch, 0, first, count, digest, 4)


def lane(batch: int = 3, next_sequence: int = 10, digest: int = 7) -> WriterSequence:
    return WriterSequence("q", "T", 0, batch, next_sequence, digest, 4, 1000, 1)


@pytest.mark.parametrize(
    ("asked", "missing_from"),
    [
        (step(3, 10, 5), 10),
        (step(3, 8, 5), 10),
        (step(3, 5, 5), None),
        (step(3, 0, 3), None),
        (step(3, 11, 5), None),
        (step(4, 0, 5), 0),
        (step(4, 5, 5), None),
        (step(2, 10, 5), None),
        (step(2, 0, 5), None),
    ],
    ids=["next", "overlap", "ends here", "long there", "gap", "new batch", "new batch, gap", "old", "old 0"],
)
def test_what_a_lane_lacks_of_a_step(asked: OnceStep, missing_from: int | None) -> None:
    assert WriterSequences().missing_from(lane(), asked) == missing_from


def test_a_lane_that_nobody_knows_begins_with_any_batch() -> None:
    lanes = WriterSequences()
    assert lanes.get("q", "T", 0).batch == NO_BATCH
    assert lanes.missing_from(lanes.get("q", "T", 0), step(17, 0, 5)) == 0


def test_digests_have_to_agree_unless_nobody_knows() -> None:
    lanes = WriterSequences()
    lanes.check_digest(lane(digest=7), step(3, 10, 1), 7)
    lanes.check_digest(lane(digest=UNKNOWN_DIGEST), step(3, 10, 1), 8)
    lanes.check_digest(lane(digest=7), step(4, 0, 1), 0)
    with pytest.raises(OnceRefused, match="others, or another order"):
        lanes.check_digest(lane(digest=7), step(3, 10, 1), 8)
    with pytest.raises(OnceRefused, match="others, or another order"):
        lanes.check_digest(lane(digest=7), step(4, 0, 1), 8)


def found(lanes: WriterSequences, asked: OnceStep, *places: int) -> tuple[int, int, int]:
    """Find messages of a step at these places of the log, each 10 bytes long; how far the lane is then."""
    for place in places:
        lanes.found("T", asked, place, place + 10, 1)
    now = lanes.get("q", "T", 0)
    return now.batch, now.next_sequence, now.digest


def test_the_messages_of_a_request_are_counted_in_the_log() -> None:
    lanes = WriterSequences()
    assert found(lanes, step(0, 0, 3, digest=5), 0, 10, 20) == (0, 3, 5)
    assert found(lanes, step(0, 3, 2, digest=6), 40, 50) == (0, 5, 6)
    assert found(lanes, step(1, 0, 1, digest=9), 60) == (1, 1, 9)


def test_a_request_of_which_the_log_has_a_part_is_known_in_part() -> None:
    """The machine stopped; the writer sends the rest as another request."""
    lanes = WriterSequences()
    assert found(lanes, step(0, 0, 5), 0, 10) == (0, 2, UNKNOWN_DIGEST)
    assert found(lanes, step(0, 2, 3, digest=8), 20, 30, 40) == (0, 5, 8)


def test_copies_do_not_count() -> None:
    """Delayed messages when they are delivered, and those that a consumer gave back."""
    lanes = WriterSequences()
    assert found(lanes, step(0, 0, 2), 0, 10) == (0, 2, 7)
    assert found(lanes, step(0, 0, 2), 500) == (0, 2, 7)
    assert found(lanes, step(1, 0, 5), 600) == (1, 1, UNKNOWN_DIGEST)
    assert found(lanes, step(1, 0, 5), 700) == (1, 1, UNKNOWN_DIGEST)
    assert found(lanes, step(0, 0, 2), 800) == (1, 1, UNKNOWN_DIGEST)


def test_the_lane_that_was_written_to_least_recently_is_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_SEQUENCES", 3)
    lanes = WriterSequences()
    for partition in (0, 1, 2, 0, 3):
        known = lanes.get("q", "T", partition)
        lanes.advance(known, OnceStep("q", 0, partition, known.next_sequence, 1, 0, 1), 10, 1)
    assert sorted(each.partition for each in lanes.all()) == [0, 2, 3]
    assert "partition 1 is forgotten" in caplog.text


def test_a_lane_that_nobody_writes_to_is_forgotten_after_30_days() -> None:
    lanes = WriterSequences()
    lanes.advance(lane(), step(3, 10, 1), 1010, stored_ms=1000)
    assert lanes.forget_idle(1000 + IDLE_MS) == 0
    assert lanes.forget_idle(1001 + IDLE_MS) == 1
    assert len(lanes) == 0


def test_a_step_is_read_as_it_is_written() -> None:
    written = OnceStep("a:b/c", 12, 3, 456, 512, 4_000_000_000, 8)
    assert read_step(written.value()) == written


@pytest.mark.parametrize("value", ["", "q", "q:1:2:3:4:5", "q:1:2:3:4:5:x", ":1:2:3:4:5:6", "q:-1:2:3:4:5:6"])
def test_what_is_no_step_is_none(value: str) -> None:
    assert read_step(value) is None
