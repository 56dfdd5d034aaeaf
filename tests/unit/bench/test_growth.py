"""Growth: what is compared with what, and the frames that make a broker grow."""

from __future__ import annotations

import os
import struct
from dataclasses import replace

import msgspec
import pytest

from bench.broker.load import BODY
from bench.errors import BenchmarkError
from bench.growth.growth import Grown, curves, figures
from bench.growth.load import batch_frame
from bench.load.frames import read_answer
from bench.load.results import LoadResult, Shape, Window, load_result
from bench.load.usage import Usage, usage_of
from cometmq.cli.bench.figures import Latencies

_WINDOW = Window(
    requests=1_000,
    seconds=2.0,
    latency=Latencies(),
    cpu_seconds=0.5,
    server_before=Usage(1.0, 50.0, 30.0),
    server_after=Usage(1.25, 60.0, 31.0),
)


def cost(cpu_us: float) -> LoadResult:
    """The result of a run whose requests cost so much."""
    return msgspec.structs.replace(load_result(Shape(1, 1), _WINDOW), server_cpu_seconds=cpu_us * 1_000 / 1e6)


GROWN = Grown(
    ours={"sends": {1: [cost(10)], 100: [cost(12), cost(14), cost(30)]}},
    theirs={"sends": {1: [cost(40)], 100: [cost(50)]}},
    small={"sends": {1: [cost(10)], 100: [cost(10), cost(14), cost(20)]}},
)


def test_a_result_has_what_the_server_used_in_the_measured_time() -> None:
    result = load_result(Shape(2, 8), _WINDOW, {17: 2}, "code 17: no route")
    assert (result.rate, result.server_cpu_us, result.server_cpu_share) == (500.0, 250.0, 0.125)
    assert (result.server_resident_mb, result.server_private_mb) == (60.0, 31.0)
    assert (result.errors, result.error_codes, result.first_error) == (2, {"17": 2}, "code 17: no route")


def test_a_server_that_nobody_looked_at_used_nothing() -> None:
    result = load_result(Shape(1, 1), replace(_WINDOW, server_before=None, server_after=None))
    assert (result.server_cpu_seconds, result.server_resident_mb) == (0.0, 0.0)


def test_what_a_process_used_only_ever_grows_and_a_process_that_is_gone_is_an_error() -> None:
    before = usage_of(os.getpid())
    while (after := usage_of(os.getpid())).cpu_seconds == before.cpu_seconds:
        sum(range(100_000))
    assert after.cpu_seconds > before.cpu_seconds > 0
    assert 0 < after.private_mb <= after.resident_mb
    with pytest.raises(BenchmarkError, match="process 4194305 cannot be looked at"):
        usage_of(4_194_305)  # above the largest process id of the system


def test_growth_is_the_largest_broker_over_the_small_one_that_took_turns_with_it() -> None:
    (figure,) = figures("topics", GROWN)
    assert figure.name == "sends, 100 topics over 1"
    assert figure.ours == pytest.approx([1.2, 1.0, 1.5])
    assert figure.is_met


def test_a_cost_that_grows_by_a_quarter_is_a_miss() -> None:
    grown = replace(GROWN, ours={"sends": {1: [cost(10)], 100: [cost(12.5), cost(17.5), cost(25)]}})
    (figure,) = figures("topics", grown)
    assert figure.is_met is False


def test_curves_are_of_the_medians_and_starts_are_there_where_they_were_measured() -> None:
    grown = replace(GROWN, our_starts={1: 0.5, 100: 0.6}, their_starts={1: 4.0})
    every = {(curve.name, curve.unit): curve for curve in curves("topics", grown)}
    costs, starts = every["sends", "CPU µs"], every["start to ready", "s"]
    assert costs.ours == pytest.approx({1: 10.0, 100: 14.0})
    assert costs.theirs == pytest.approx({1: 40.0, 100: 50.0})
    assert (starts.ours, starts.theirs) == ({1: 0.5, 100: 0.6}, {1: 4.0})
    assert ("start to ready", "s") not in {(curve.name, curve.unit) for curve in curves("topics", GROWN)}


def test_a_batch_has_whole_messages_of_the_usual_kind() -> None:
    body = read_answer(batch_frame("orders", 3, 5)).body
    position, found = 0, 0
    while position < len(body):
        size, _, _, _, length = struct.unpack_from(">iiiii", body, position)
        assert body[position + 20 : position + 20 + length] == BODY
        properties = body[position + 22 + length : position + size]
        assert b"UNIQ_KEY\x01" in properties
        assert len(properties) == int.from_bytes(body[position + 20 + length :][:2], "big")
        position, found = position + size, found + 1
    assert found == 5
