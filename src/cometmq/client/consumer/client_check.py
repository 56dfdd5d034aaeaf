"""Asking a broker whether it can serve a subscription before the consumer relies on it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from cometmq.client.subscription import is_tags
from cometmq.model.errors import ClientError, ResponseError
from cometmq.model.route import MASTER_ID
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance


async def check_subscription(
    instance: ClientInstance, group: str, namespace: str, subscription: SubscriptionData
) -> None:
    """Refuse an expression that a broker of the topic cannot filter by; tags need no asking."""
    if is_tags(subscription):
        return
    route = await instance.routes.of(subscription.topic)
    brokers = [broker.broker_addrs for broker in route.broker_datas if broker.broker_addrs] if route else []
    if not brokers:
        return  # the topic does not exist yet; pulling will tell
    addresses = random.choice(brokers)
    body = {
        "clientId": instance.client_id,
        "group": group,
        "namespace": namespace,
        "subscriptionData": subscription,
    }
    try:
        await instance.remoting.call_ok(
            addresses.get(MASTER_ID) or next(iter(addresses.values())),
            RequestCode.CHECK_CLIENT_CONFIG,
            body=msgspec.json.encode(body),
            timeout_s=instance.settings.call_timeout_s,
        )
    except ResponseError as error:
        raise ClientError(
            f"the subscription to {subscription.topic} by {subscription.expression_type} is refused: {error}",
            code=error.code,
        ) from error
