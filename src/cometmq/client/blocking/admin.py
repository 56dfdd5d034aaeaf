"""The blocking admin client; `cometmq.aio.Admin` says what each method does."""

from __future__ import annotations

from typing import Unpack

from cometmq.client.admin import admin as aio
from cometmq.client.blocking.loop import BlockingClient, blocking
from cometmq.client.options import documented
from cometmq.client.settings import ClientOptions, ClientSettings


@documented(ClientSettings)
class Admin(BlockingClient[aio.Admin]):
    """Manages a cluster.

    ```python
    with Admin(namesrv="127.0.0.1:9876") as admin:
        admin.create_topic("orders", queues=8)
    ```
    """

    def __init__(self, settings: ClientSettings | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__(aio.Admin(settings, **options))

    def name_servers(self) -> tuple[str, ...]:
        """The addresses of the name servers."""
        return self.aio.name_servers()

    # Topics.

    create_topic = blocking(aio.Admin.create_topic)
    delete_topic = blocking(aio.Admin.delete_topic)
    topics = blocking(aio.Admin.topics)
    put_topic = blocking(aio.Admin.put_topic)
    await_topic = blocking(aio.Admin.await_topic)
    topic_configs = blocking(aio.Admin.topic_configs)
    topic_config = blocking(aio.Admin.topic_config)
    groups_of_topic = blocking(aio.Admin.groups_of_topic)
    topic_route = blocking(aio.Admin.topic_route)
    topic_status = blocking(aio.Admin.topic_status)
    order_config = blocking(aio.Admin.order_config)
    put_order_config = blocking(aio.Admin.put_order_config)

    # Servers.

    cluster_info = blocking(aio.Admin.cluster_info)
    masters = blocking(aio.Admin.masters)
    broker_info = blocking(aio.Admin.broker_info)
    broker_config = blocking(aio.Admin.broker_config)
    set_broker_config = blocking(aio.Admin.set_broker_config)
    name_server_config = blocking(aio.Admin.name_server_config)
    set_name_server_config = blocking(aio.Admin.set_name_server_config)
    wipe_write_permission = blocking(aio.Admin.wipe_write_permission)
    add_write_permission = blocking(aio.Admin.add_write_permission)
    kv_configs = blocking(aio.Admin.kv_configs)
    kv_config = blocking(aio.Admin.kv_config)
    put_kv_config = blocking(aio.Admin.put_kv_config)
    delete_kv_config = blocking(aio.Admin.delete_kv_config)
    producers = blocking(aio.Admin.producers)
    producer_connections = blocking(aio.Admin.producer_connections)

    # Groups.

    create_group = blocking(aio.Admin.create_group)
    delete_group = blocking(aio.Admin.delete_group)
    groups = blocking(aio.Admin.groups)
    group_connection = blocking(aio.Admin.group_connection)
    member_info = blocking(aio.Admin.member_info)
    group_permission = blocking(aio.Admin.group_permission)
    request_modes = blocking(aio.Admin.request_modes)
    set_request_mode = blocking(aio.Admin.set_request_mode)
    consume_time_spans = blocking(aio.Admin.consume_time_spans)
    broker_progress = blocking(aio.Admin.broker_progress)
    consumer_progress = blocking(aio.Admin.consumer_progress)
    consumer_offset = blocking(aio.Admin.consumer_offset)
    commit_offset = blocking(aio.Admin.commit_offset)
    reset_offsets = blocking(aio.Admin.reset_offsets)
    clone_offsets = blocking(aio.Admin.clone_offsets)

    # Queues and messages.

    queues = blocking(aio.Admin.queues)
    read = blocking(aio.Admin.read)
    max_offset = blocking(aio.Admin.max_offset)
    min_offset = blocking(aio.Admin.min_offset)
    search_offset = blocking(aio.Admin.search_offset)
    view_message = blocking(aio.Admin.view_message)
    query_messages = blocking(aio.Admin.query_messages)
    message_by_id = blocking(aio.Admin.message_by_id)
    message_trace = blocking(aio.Admin.message_trace)
    message_tracks = blocking(aio.Admin.message_tracks)
    consume_directly = blocking(aio.Admin.consume_directly)
    resume_half_check = blocking(aio.Admin.resume_half_check)
