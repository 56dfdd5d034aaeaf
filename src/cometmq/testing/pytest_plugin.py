"""The pytest fixture `rocketmq`: a broker of its own for each test that asks for one.

    def test_orders_are_billed(rocketmq):
        with Producer("shop", namesrv=rocketmq.namesrv) as producer:
            ...

Installed with CometMQ; nothing has to be configured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cometmq.testing.embedded import EmbeddedBroker


@pytest.fixture
def rocketmq() -> Iterator[EmbeddedBroker]:
    """A name server and a broker, in a thread of this process, gone at the end of the test."""
    from cometmq.testing.embedded import EmbeddedBroker  # here, so that other tests do not pay for it

    with EmbeddedBroker() as broker:
        yield broker
