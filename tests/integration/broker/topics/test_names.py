"""Names in requests of administrators: none leads out of the store, none is taken that Apache refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header
from cometmq.wire.headers.group import DeleteSubscriptionGroupRequest, UpdateGroupForbiddenRequest
from cometmq.wire.headers.offset import CloneGroupOffsetRequest
from cometmq.wire.headers.topic import CreateTopicRequest, DeleteTopicRequest
from tests.integration.broker.broker_kit import BrokerKit, running_broker

INVALID = 29
SPELLINGS = [
    "../commitlog/00000000000000000000",
    "../config/topics.json",
    "./../config/topics.json",
    "Orders/../../config/topics.json",
    "..\\config\\topics.json",
    "%2e%2e/config/topics.json",
    "．．/config/topics.json",
    "%RETRY%../../config/topics.json",
    "%LMQ%../../config/topics.json",
    "rmq/../../config/topics.json",
    "Orders\0",
    "Orders\n2026 INFO all is well",
    "",
    " ",
    ".",
    "..",
    "x" * 300,
    "ü" * 128,
    "%RETRY%" + "x" * 300,
]


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[BrokerKit]:
    async with running_broker(tmp_path) as kit:
        await kit.send("Orders")
        yield kit


def put_precious_files(root: Path) -> None:
    for folder in (root, root / "store"):
        (folder / "precious").write_text("precious")


def everything(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


@pytest.mark.parametrize("topic", [*SPELLINGS, "{root}/precious", "../../precious", "../precious"])
async def test_no_name_of_a_topic_deletes_another_file(kit: BrokerKit, tmp_path: Path, topic: str) -> None:
    put_precious_files(tmp_path)
    before = everything(tmp_path)
    topic = topic.format(root=tmp_path)
    answer = await kit.call(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=topic))
    assert answer.code == INVALID
    assert (answer.remark or "").startswith("The specified topic")
    assert everything(tmp_path) >= before
    assert len(kit.stored("Orders")) == 1


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("what", ["topic", "topics", "group", "groups", "no group", "forbidden", "clone"])
async def test_no_request_makes_or_means_something_of_such_a_name(
    kit: BrokerKit, tmp_path: Path, name: str, what: str
) -> None:
    code, header, body = request_of(what, name)
    before = everything(tmp_path)
    answer = await kit.call(code, header, body)
    assert answer.code == INVALID
    assert (answer.remark or "").startswith("The specified ")
    context = kit.broker.context
    assert name not in context.topics.table
    assert name not in context.groups.table
    assert everything(tmp_path) == before


def request_of(what: str, name: str) -> tuple[RequestCode, Header | None, bytes]:
    if what == "topic":
        wanted = CreateTopicRequest(
            topic=name, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
            topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        return RequestCode.UPDATE_AND_CREATE_TOPIC, wanted, b""
    if what == "topics":
        body = msgspec.json.encode({"topicConfigList": [{"topicName": "Fine"}, {"topicName": name}]})
        return RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body
    if what == "group":
        body = msgspec.json.encode({"groupName": name})
        return RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body
    if what == "groups":
        body = msgspec.json.encode({"groupConfigList": [{"groupName": "fine"}, {"groupName": name}]})
        return RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body
    if what == "no group":
        deleted = DeleteSubscriptionGroupRequest(group_name=name, clean_offset=True)
        return RequestCode.DELETE_SUBSCRIPTIONGROUP, deleted, b""
    if what == "forbidden":
        forbidden = UpdateGroupForbiddenRequest(group="fine", topic=name, readable=False)
        return RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, forbidden, b""
    cloned = CloneGroupOffsetRequest(src_group="fine", dest_group=name, topic="Orders", offline=True)
    return RequestCode.CLONE_GROUP_OFFSET, cloned, b""


async def test_retry_topics_of_pop_consumers_can_be_deleted(kit: BrokerKit) -> None:
    """B9: their names have a letter that no request may choose."""
    kit.broker.context.topics.ensure("%RETRY%billing+Orders", 1)
    deletion = DeleteTopicRequest(topic="%RETRY%billing+Orders")
    await kit.ok(RequestCode.DELETE_TOPIC_IN_BROKER, deletion)
    assert kit.broker.context.topics.get("%RETRY%billing+Orders") is None


async def test_names_that_somebody_wrote_into_the_saved_tables_are_left_out(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as kit:
        await kit.send("Orders")
        kit.broker.context.groups.find("billing")
    write_unsafe_names(tmp_path / "store" / "config")
    put_precious_files(tmp_path)
    async with running_broker(tmp_path) as kit:
        context = kit.broker.context
        assert not {"../precious", "/tmp/precious", "..", "x\0y", "looks-fine"} & (
            context.topics.table.keys() | context.groups.table.keys()
        )
        assert "Orders" in context.topics.table
        assert "billing" in context.groups.table
        await kit.call(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic="../precious"))
        await kit.ok(RequestCode.CLEAN_UNUSED_TOPIC)
    assert "store/precious" in everything(tmp_path)


def write_unsafe_names(config: Path) -> None:
    for file, table, member in (
        ("topics.json", "topicConfigTable", "topicName"),
        ("subscriptionGroup.json", "subscriptionGroupTable", "groupName"),
    ):
        content = json.loads((config / file).read_text())
        for name in ("../precious", "/tmp/precious", "..", "x\0y"):
            content[table][name] = {member: name}
        content[table]["looks-fine"] = {member: "../precious"}
        (config / file).write_text(json.dumps(content))
