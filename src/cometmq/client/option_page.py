"""The page of client options, made from their declarations: `python -m cometmq.client.option_page`.

It prints `docs/OPTIONS.md`; a test compares the two.
"""

from __future__ import annotations

from typing import Final

from cometmq.client.consumer.pop.consumer import PopConsumer
from cometmq.client.consumer.pop.settings import PopOptions, PopSettings
from cometmq.client.consumer.pull import PullConsumer
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.consumer.settings import ConsumerSettings, PullSettings, PushSettings
from cometmq.client.options import keyword_options, options_of
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.settings import ProducerSettings
from cometmq.client.producer.transactions import TransactionProducer
from cometmq.client.settings import ClientSettings

_HEAD: Final = """\
# Client options

Written by `python -m cometmq.client.option_page`; do not edit it by hand.

Give options as keywords, `Producer("order-service", namesrv="127.0.0.1:9876", retry_times=5)`, or as one
struct, `Producer("order-service", ProducerSettings(…))`. Names are RocketMQ's in Python spelling; a unit
stands at the end of a name. An option that does not exist, or a value that cannot work, is refused when the
client is made. `help(Producer)` lists the same.
"""


def page() -> str:
    """The whole page."""
    every, consumers = set(ClientSettings.__struct_fields__), set(ConsumerSettings.__struct_fields__)
    push = set(PushSettings.__struct_fields__)
    sections = {
        "Every client": options_of(ClientSettings),
        "Producer": [
            *keyword_options(Producer, ("serializer", "interceptors")),
            *options_of(ProducerSettings, set(ProducerSettings.__struct_fields__) - every),
        ],
        "TransactionProducer, beside those of a producer": keyword_options(
            TransactionProducer, ("check", "listener", "topics", "check_threads")
        ),
        "PushConsumer and PullConsumer": [
            *keyword_options(PullConsumer, ("serializer", "rebalance_listener")),
            *options_of(ConsumerSettings, consumers - every),
        ],
        "PushConsumer": [
            *keyword_options(PushConsumer, ("interceptors",)),
            *options_of(PushSettings, push - consumers),
        ],
        "PullConsumer": options_of(PullSettings, set(PullSettings.__struct_fields__) - consumers),
        "PopConsumer": [
            *keyword_options(PopConsumer, ("serializer", "interceptors")),
            *options_of(PopSettings, PopOptions.__annotations__.keys() - every),
        ],
    }
    parts = [_HEAD]
    for title, options in sections.items():
        parts.append(f"\n## {title}\n\n| option | default | |\n| --- | --- | --- |\n")
        parts += [f"| `{each.name}` | `{each.default}` | {_cell(each.meaning)} |\n" for each in options]
    return "".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
