"""The pytest fixtures: `rocketmq`, `rocketmq_session` and `rocketmq_topic`.

    def test_orders_are_billed(rocketmq):                        # a broker of its own
        with Producer("shop", namesrv=rocketmq.namesrv) as producer:
            ...

    def test_orders_are_shipped(rocketmq_session, rocketmq_topic):   # a topic of its own on a shared broker
        ...

    @pytest.mark.rocketmq(brokers=2, settings={"flushDiskType": "SYNC_FLUSH"}, queues=1)
    def test_orders_survive(rocketmq, rocketmq_topic):
        ...

Installed with CometMQ; nothing has to be configured. Settings are RocketMQ's properties. They come from the
ini option `rocketmq_settings` (lines of `key=value`), then from the fixture of that name, which a
`conftest.py` may override, then from the marker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from cometmq.testing.embedded import EmbeddedBroker

_MARKER: Final = (
    "rocketmq(brokers=1, settings={}, queues=4): the brokers of the fixture rocketmq and their settings, "
    "and the queues of rocketmq_topic"
)
_OPTIONS: Final = ("brokers", "settings", "queues")
_NOT_IN_A_TOPIC: Final = re.compile("[^a-zA-Z0-9_-]+")
_LONGEST_NAME: Final = 100
_numbers: Final = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "rocketmq_settings", "settings of embedded brokers, a line each: key=value", type="linelist"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture(scope="session")
def rocketmq_settings() -> Mapping[str, str]:
    """RocketMQ's properties of all embedded brokers; override it in a `conftest.py`."""
    return {}


@pytest.fixture
def rocketmq(
    request: pytest.FixtureRequest, rocketmq_settings: Mapping[str, str]
) -> Iterator[EmbeddedBroker]:
    """A name server and a broker, in a thread of this process, gone at the end of the test."""
    marked = _marked(request)
    settings = {**_ini_settings(request), **rocketmq_settings, **marked.get("settings", {})}
    yield from _run(settings, marked.get("brokers", 1))


@pytest.fixture(scope="session")
def rocketmq_session(
    request: pytest.FixtureRequest, rocketmq_settings: Mapping[str, str]
) -> Iterator[EmbeddedBroker]:
    """A name server and a broker that all tests share; see `rocketmq_topic`."""
    yield from _run({**_ini_settings(request), **rocketmq_settings}, 1)


@pytest.fixture
def rocketmq_topic(request: pytest.FixtureRequest) -> str:
    """A topic that no other test uses, on the broker of `rocketmq`, or else on the shared one."""
    fixture = "rocketmq" if "rocketmq" in request.fixturenames else "rocketmq_session"
    broker: EmbeddedBroker = request.getfixturevalue(fixture)
    name = _NOT_IN_A_TOPIC.sub("-", request.node.name)[:_LONGEST_NAME]
    topic = f"{name}-{next(_numbers)}"
    broker.call(broker.create_topic(topic, queues=_marked(request).get("queues", 4)))
    return topic


def _run(settings: Mapping[str, str], brokers: int) -> Iterator[EmbeddedBroker]:
    from cometmq.testing.embedded import EmbeddedBroker  # here, so that other tests do not pay for it

    with EmbeddedBroker(settings=settings, brokers=brokers) as broker:
        yield broker


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the marker says; the one nearest to the test wins."""
    marker = request.node.get_closest_marker("rocketmq")
    if marker is None:
        return {}
    unknown = [*map(repr, marker.args), *(marker.kwargs.keys() - set(_OPTIONS))]
    if unknown:
        raise pytest.UsageError(
            f"the marker rocketmq has no {', '.join(unknown)}, only {', '.join(_OPTIONS)}"
        )
    return dict(marker.kwargs)


def _ini_settings(request: pytest.FixtureRequest) -> dict[str, str]:
    settings = {}
    for line in request.config.getini("rocketmq_settings"):
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"rocketmq_settings: {line!r} is not key=value")
        settings[key.strip()] = value.strip()
    return settings
