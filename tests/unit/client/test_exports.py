"""What `import cometmq` gives, and what it costs."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import cometmq
import cometmq.aio
from cometmq.client.instance.members import ConsumerMember, TransactionMember


@pytest.mark.parametrize("name", cometmq.__all__)
def test_everything_that_is_named_is_there_and_documented(name: str) -> None:
    value = getattr(cometmq, name)
    assert isinstance(value, str) or inspect.getdoc(value)
    assert name in dir(cometmq)


def test_a_name_that_does_not_exist_is_refused_as_usual() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Prodcuer'"):
        _ = cometmq.Prodcuer


def test_importing_the_package_loads_no_client() -> None:
    script = "import sys, cometmq; sys.exit('asyncio' in sys.modules or 'msgspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    "name", ["Admin", "PopConsumer", "Producer", "PullConsumer", "PushConsumer", "TransactionProducer"]
)
def test_both_faces_of_a_client_offer_the_same(name: str) -> None:
    """Every public method of the asyncio class has a blocking twin, or one that does the same otherwise."""
    otherwise = {"send_later": "send_async"}
    aio, blocking = getattr(cometmq.aio, name), getattr(cometmq, name)
    for_the_instance = set() if name == "Admin" else {*dir(ConsumerMember), *dir(TransactionMember)}
    methods = {each for each, _ in inspect.getmembers(aio, inspect.isfunction) if not each.startswith("_")}
    missing = {each for each in methods if not hasattr(blocking, otherwise.get(each, each))}
    assert missing <= for_the_instance


def test_a_blocking_method_shows_the_signature_and_the_docstring_of_its_twin() -> None:
    aio, blocking = cometmq.aio.Admin.create_topic, cometmq.Admin.create_topic
    assert inspect.signature(blocking) == inspect.signature(aio)
    assert inspect.getdoc(blocking) == inspect.getdoc(aio)
    assert not inspect.iscoroutinefunction(blocking)


def test_an_unknown_keyword_of_a_send_is_refused() -> None:
    producer = cometmq.Producer("orders", namesrv="127.0.0.1:1")
    for send in (producer.send, producer.send_async, producer.request):
        with pytest.raises(TypeError, match="unexpected keyword argument 'timeout'"):
            send(cometmq.Message("orders", b"x"), timeout=1)  # type: ignore[call-arg]
