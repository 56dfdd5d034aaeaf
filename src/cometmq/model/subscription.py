"""Consumer groups: how a broker serves each of them."""

from __future__ import annotations

import msgspec


class ExponentialRetryPolicy(msgspec.Struct, frozen=True):
    """Waits that grow by a factor, in milliseconds."""

    initial: int = 5_000
    max: int = 7_200_000
    multiplier: int = 2


class CustomizedRetryPolicy(msgspec.Struct, frozen=True):
    """A wait for each attempt, in milliseconds; the last one also for all later attempts."""

    next: tuple[int, ...] = ()


class GroupRetryPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """How long a failed message of the group waits: `EXPONENTIAL` or `CUSTOMIZED`.

    Without figures, the broker's delay levels serve.
    """

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscription(msgspec.Struct, frozen=True, rename="camel"):
    """A declared subscription of a group, kept with its configuration."""

    topic: str
    expression_type: str
    expression: str
    version: int = 0


class SubscriptionGroupConfig(msgspec.Struct, frozen=True, rename="camel"):
    """How a consumer group is set up on one broker."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: tuple[SimpleSubscription, ...] | None = None
    attributes: dict[str, str] = msgspec.field(default_factory=dict)
