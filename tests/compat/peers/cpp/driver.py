"""The C++ client as a program that does what it is told, through its binding for Python.

Commands come in as JSON lines, answers and events go out as JSON lines. Usage: driver.py NAMESRV
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage  # type: ignore[import-not-found]
from rocketmq.ffi import MessageModel  # type: ignore[import-not-found]

NAMESRV = sys.argv[1]
SENT_STATUS = {0: "SEND_OK"}
ANSWER_SECONDS = 20.0
# What a listener may be asked to show; the binding has no way to list them.
SHOWN_PROPERTIES = ("TAGS", "KEYS", "UNIQ_KEY", "DELAY", "color", "weight", "ORIGIN_MESSAGE_ID")

# The library prints too: the lines of the protocol get a descriptor of their own.
_console = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
_printing = threading.Lock()
_producers: dict[str, Any] = {}
_consumers: dict[str, Any] = {}


def show(line: dict[str, Any]) -> None:
    with _printing:
        _console.write(json.dumps(line) + "\n")
        _console.flush()


def start_producer(told: dict[str, Any]) -> bool:
    producer = Producer(told["group"])
    producer.set_namesrv_addr(NAMESRV)
    producer.set_timeout(10_000)
    producer.start()
    _producers[told["name"]] = producer
    return True


def stop_producer(told: dict[str, Any]) -> bool:
    _producers.pop(told["name"]).shutdown()
    return True


def send(told: dict[str, Any]) -> list[dict[str, Any] | None]:
    producer = _producers[told["producer"]]
    messages = [_message(told["topic"], one) for one in told["messages"]]
    if told["form"] == "batch":
        return [_sent(producer.send_batch(messages))]
    return [_send_one(producer, message, told) for message in messages]


def _send_one(producer: Any, message: Any, told: dict[str, Any]) -> dict[str, Any] | None:
    form = told["form"]
    if form == "sync":
        return _sent(producer.send_sync(message))
    if form == "selector":
        return _sent(producer.send_orderly(message, told["arg"]))
    if form == "oneway":
        producer.send_oneway(message)
        return None
    if form == "async":
        return _sent(_awaited(producer, message))
    raise ValueError(f"no such form: {form}")


def _awaited(producer: Any, message: Any) -> Any:
    done, outcome = threading.Event(), []

    def end(result: Any) -> None:
        outcome.append(result)
        done.set()

    producer.send_async(message, end, end)
    if not done.wait(ANSWER_SECONDS):
        raise TimeoutError("no answer to an asynchronous send")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _message(topic: str, one: dict[str, Any]) -> Any:
    message = Message(topic)
    message.set_body(base64.b64decode(one["body"]))
    if "tags" in one:
        message.set_tags(one["tags"])
    if "keys" in one:
        message.set_keys(one["keys"])
    if "delayLevel" in one:
        message.set_delay_time_level(one["delayLevel"])
    for name, value in one.get("properties", {}).items():
        message.set_property(name, value)
    return message


def _sent(result: Any) -> dict[str, Any]:
    return {
        "status": SENT_STATUS.get(int(result.status), str(result.status)),
        "msgId": result.msg_id,
        "queueOffset": result.offset,
    }


def start_consumer(told: dict[str, Any]) -> str:
    model = MessageModel.BROADCASTING if told.get("broadcast") else MessageModel.CLUSTERING
    consumer = PushConsumer(told["group"], orderly=told.get("ordered", False), message_model=model)
    consumer.set_namesrv_addr(NAMESRV)
    consumer.set_instance_name(told["name"])

    def listen(message: RecvMessage) -> None:
        show({"consumer": told["name"], "messages": [_received(message)]})
        if message.reconsume_times < told.get("failures", 0):
            raise RuntimeError("failed on purpose")

    for topic in told["topics"]:
        consumer.subscribe(topic, listen, told["tags"])
    consumer.start()
    _consumers[told["name"]] = consumer
    return str(told["name"])


def _received(message: RecvMessage) -> dict[str, Any]:
    properties = {name: message.get_property(name) for name in SHOWN_PROPERTIES}
    return {
        "topic": message.topic,
        "body": base64.b64encode(message.body).decode(),
        "msgId": message.id,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "reconsumeTimes": message.reconsume_times,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "properties": {name: value.decode() for name, value in properties.items() if value},
        "at": int(time.time() * 1000),
    }


def stop_consumer(told: dict[str, Any]) -> bool:
    _consumers.pop(told["name"]).shutdown()
    return True


COMMANDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "producer": start_producer,
    "stopProducer": stop_producer,
    "send": send,
    "push": start_consumer,
    "stop": stop_consumer,
}


def answer(told: dict[str, Any]) -> None:
    try:
        show({"id": told["id"], "ok": COMMANDS[told["do"]](told)})
    except Exception as problem:
        show({"id": told["id"], "error": repr(problem)})


def main() -> None:
    for line in sys.stdin:
        threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
    # The library's own threads would wait for each other.
    os._exit(0)


if __name__ == "__main__":
    main()
