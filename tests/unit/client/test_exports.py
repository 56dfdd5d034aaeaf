"""What `import cometmq` gives, and what it costs."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

import cometmq
import cometmq.aio
from cometmq.client.instance.members import ConsumerMember, TransactionMember


@pytest.mark.parametrize("name", cometmq.__all__)
def test_everything_that_is_named_is_there_and_documented(name: str) -> None:
    value = getattr(cometmq, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert inspect.getdoc(value)
    elif name != "__version__":  # an alias, which has its sentence below it
        module = inspect.getsource(sys.modules[cometmq._HOMES[name]])
        assert re.search(rf'^{name} = (\(\n(    .*\n)+\)|.*)\n"""', module, re.MULTILINE)
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
    """Every public method of the asyncio class has a blocking twin of the same name."""
    aio, blocking = getattr(cometmq.aio, name), getattr(cometmq, name)
    for_the_instance = set() if name == "Admin" else {*dir(ConsumerMember), *dir(TransactionMember)}
    methods = {each for each, _ in inspect.getmembers(aio, inspect.isfunction) if not each.startswith("_")}
    missing = {each for each in methods if not hasattr(blocking, each)}
    assert missing <= for_the_instance


def test_a_blocking_method_shows_the_signature_and_the_docstring_of_its_twin() -> None:
    aio, blocking = cometmq.aio.Admin.create_topic, cometmq.Admin.create_topic
    assert inspect.signature(blocking) == inspect.signature(aio)
    assert inspect.getdoc(blocking) == inspect.getdoc(aio)
    assert not inspect.iscoroutinefunction(blocking)


@pytest.mark.parametrize(
    ("client", "keyword", "hint"),
    [
        ("Producer", "namesrv_adr", r"unknown option 'namesrv_adr': did you mean 'namesrv'\?"),
        ("Producer", "namesrvAddr", r"unknown option 'namesrvAddr': did you mean 'namesrv'\?"),
        ("Producer", "sendTimeoutMs", r"did you mean 'send_timeout_ms'\?"),
        ("Producer", "interceptor", r"did you mean 'interceptors'\?"),
        ("TransactionProducer", "checkThreads", r"did you mean 'check_threads'\?"),
        ("PushConsumer", "consume_thread", r"did you mean 'consume_threads'\?"),
        ("PopConsumer", "serialiser", r"did you mean 'serializer'\?"),
        ("PopConsumer", "pull_batch_size", "'pull_batch_size' has no effect in a PopConsumer; leave it out"),
        ("PullConsumer", "autocommit", r"did you mean 'auto_commit'\?"),
        ("Admin", "zzz", r"unknown option 'zzz'; help\(Admin\) lists the options"),
    ],
)
def test_an_unknown_option_of_a_client_is_refused_with_the_nearest(
    client: str, keyword: str, hint: str
) -> None:
    for module in (cometmq, cometmq.aio):
        with pytest.raises(TypeError, match=hint):
            getattr(module, client)(*([] if client == "Admin" else ["group"]), **{keyword: 1})


def test_an_unknown_keyword_of_a_send_is_refused() -> None:
    producer = cometmq.Producer("orders", namesrv="127.0.0.1:1")
    for send in (producer.send, producer.send_async, producer.request):
        with pytest.raises(TypeError, match="unexpected keyword argument 'timeout'"):
            send(cometmq.Message("orders", b"x"), timeout=1)  # type: ignore[call-arg]
