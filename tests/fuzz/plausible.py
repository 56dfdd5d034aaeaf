"""Values that a handler takes for good, so that it goes on to look at the odd one beside them.

None of the names here is used by the clients that check at the end of a run whether the service still works.
"""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any, Final

from cometmq.wire.codes import RequestCode
from cometmq.wire.exactly_once import OwnRequestCode
from cometmq.wire.record.ids import decode_offset_id
from cometmq.wire.record.preencoded import describe_records
from tests.fuzz.properties import odd_properties

CLUSTER: Final = "FuzzCluster"
BROKER_NAME: Final = "fuzzed"
OTHER_BROKER: Final = "another-broker"
"""What requests to the name server are about: the broker of the run has to stay reachable."""
TOPICS: Final = ["fuzz-a", "fuzz-b", "fuzz-c", "fuzz-order"]
GROUPS: Final = ["fuzz-group", "fuzz-shop", "fuzz-billing"]
DOOMED_TOPICS: Final = TOPICS[2:]
DOOMED_GROUPS: Final = GROUPS[2:]
"""What is deleted and forbidden all the time; the others stay, so that there is something to find."""
SYSTEM_TOPICS: Final = [
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "rmq_sys_wheel_timer", f"rmq_sys_REVIVE_LOG_{CLUSTER}", "TBW102", "SELF_TEST_TOPIC", "BenchmarkTest",
    "OFFSET_MOVED_EVENT", "RMQ_SYS_TRACE_TOPIC", f"{CLUSTER}_REPLY_TOPIC", CLUSTER, BROKER_NAME,
    *(f"%RETRY%{group}" for group in GROUPS), *(f"%DLQ%{group}" for group in GROUPS),
    f"%RETRY%{GROUPS[0]}_{TOPICS[0]}", f"%RETRY%{GROUPS[0]}+{TOPICS[0]}",
]  # fmt: skip
DESTRUCTIVE: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    }
)
UNIQUE_ID: Final = "7F0000010000000000000000000000010000"
EXPRESSIONS: Final = [
    "*",
    "TagA",
    "TagA || TagB",
    "a > 5",
    "a IS NOT NULL AND b = 'x'",
    "",
    "||",
    "a BETWEEN 1 AND 2",
]
COUNTERS: Final = [
    "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "GROUP_GET_NUMS", "GROUP_GET_SIZE", "BROKER_PUT_NUMS",
    "SNDBCK_PUT_NUMS", "x",
]  # fmt: skip

Maker = Callable[[random.Random], Any]


def one_of(*values: Any) -> Maker:
    return lambda choice: choice.choice(values)


def small(end: int) -> Maker:
    return lambda choice: choice.randrange(end)


class Plausible:
    """Good values of fields by their name; `message_ids` are those that a broker gave to messages."""

    def __init__(self, now_ms: int, message_ids: list[str]) -> None:
        self.now_ms = now_ms
        self.message_ids = message_ids or ["7F00000100002A9F0000000000000000"]
        self.places = [decode_offset_id(each).commit_log_offset for each in self.message_ids]
        self._by_name = self._table()

    def value(self, choice: random.Random, name: str, kind: type, code: int) -> str:
        """A good value of a field; `name` is its name in Python."""
        if code in DESTRUCTIVE and name in ("topic", "group", "group_name"):
            return choice.choice(DOOMED_TOPICS if name == "topic" else DOOMED_GROUPS)
        if code == OwnRequestCode.SEND_RECORDS and name == "properties":
            return describe_records(2, keyed=False)
        make = self._by_name.get(name)
        if make is not None:
            return str(make(choice))
        if kind is bool:
            return choice.choice(("true", "false"))
        return str(choice.randrange(10)) if kind is int else "fuzz"

    def topic(self, choice: random.Random) -> str:
        return choice.choice(TOPICS if choice.random() < 0.8 else SYSTEM_TOPICS)

    def group(self, choice: random.Random) -> str:
        return choice.choice(GROUPS)

    def moment(self, choice: random.Random) -> int:
        return self.now_ms + choice.choice((0, 0, -1000, 1000, 5000, -86_400_000, 3_600_000))

    def handle(self, choice: random.Random) -> str:
        """What a popped message is acknowledged with."""
        start, queue = choice.randrange(20), choice.randrange(4)
        return (
            f"{start} {self.moment(choice)} {choice.choice((1000, 60_000))} {choice.randrange(8)} "
            f"{choice.choice('0012')} {BROKER_NAME} {queue} {start + choice.randrange(3)}"
        )

    def recall_handle(self, choice: random.Random) -> str:
        text = f"v1 {choice.choice(TOPICS)} {BROKER_NAME} {self.now_ms + 60_000} {UNIQUE_ID}"
        return urlsafe_b64encode(text.encode()).decode()

    def _table(self) -> dict[str, Maker]:
        table: dict[str, Maker] = {
            "topic": self.topic,
            "origin_topic": self.topic,
            "default_topic": one_of("TBW102", "TBW102", *TOPICS),
            "topic_list": lambda choice: ";".join(choice.sample(TOPICS, 2)),
            "queue_id": one_of(0, 1, 2, 3, 0, -1, 7),
            "queue_offset": small(30),
            "commit_offset": small(30),
            "offset": lambda choice: choice.choice((choice.choice(self.places), choice.randrange(20))),
            "commit_log_offset": lambda choice: choice.choice(self.places),
            "tran_state_table_offset": small(10),
            "commit_or_rollback": one_of(0, 8, 12, 4),
            "max_msg_nums": one_of(1, 2, 8, 32),
            "sys_flag": one_of(0, 0, 4, 8, 1, 2, 3, 5, 6, 7, 12, 15),
            "suspend_timeout_millis": one_of(0, 10, 100, 200),
            "poll_time": one_of(0, 10, 100, 200),
            "invisible_time": one_of(500, 1000, 5000, 60_000),
            "init_mode": one_of(0, 1),
            "subscription": one_of(*EXPRESSIONS),
            "exp": one_of(*EXPRESSIONS),
            "expression_type": one_of("TAG", "SQL92", "TAG"),
            "exp_type": one_of("TAG", "SQL92", "TAG"),
            "sub_version": lambda choice: self.now_ms,
            "properties": odd_properties,
            "default_topic_queue_nums": one_of(1, 4, 8),
            "flag": one_of(0, 1, 2),
            "reconsume_times": one_of(0, 0, 1, 16),
            "max_reconsume_times": one_of(16, 1, 0),
            "unit_mode": one_of("false", "false", "true"),
            "batch": one_of("false", "false", "false", "true"),
            "extra_info": self.handle,
            "recall_handle": self.recall_handle,
            "delay_level": one_of(0, 1, 3, -1),
            "read_queue_nums": one_of(1, 4, 8),
            "write_queue_nums": one_of(1, 4, 8),
            "perm": one_of(6, 6, 2, 4),
            "topic_filter_type": one_of("SINGLE_TAG", "MULTI_TAG"),
            "topic_sys_flag": one_of(0, 1, 2, 3),
            "attributes": one_of(
                "+message.type=NORMAL", "-message.type", "", "+queue.type=SimpleCQ", "+cleanup.policy=DELETE"
            ),
            "data_version": one_of('{"counter":1,"timestamp":2,"stateVersion":0}', ""),
            "key": one_of("k1", "k2", UNIQUE_ID),
            "max_num": one_of(1, 32, 64),
            "begin_timestamp": one_of(0, self.now_ms - 3_600_000),
            "end_timestamp": one_of(self.now_ms + 3_600_000, 2**63 - 1),
            "boundary_type": one_of("LOWER", "UPPER", "lower"),
            "index": small(20),
            "count": one_of(1, 3, 10),
            "msg_id": lambda choice: choice.choice((UNIQUE_ID, choice.choice(self.message_ids))),
            "origin_msg_id": one_of(UNIQUE_ID),
            "offset_msg_id": one_of("7F00000100002A9F0000000000000000"),
            "client_id": one_of("fuzz-client", "127.0.0.1@1"),
            "client_addr": one_of("fuzz-client"),
            "stats_name": one_of(*COUNTERS),
            "stats_key": one_of(*TOPICS, f"{TOPICS[0]}@{GROUPS[0]}", f"0@{TOPICS[0]}@{GROUPS[0]}"),
            "target_broker_name": one_of(BROKER_NAME),
            "broker_name": one_of(OTHER_BROKER),
            "broker_addr": one_of("192.0.2.2:10911"),
            "broker_id": one_of(0, 0, 1),
            "cluster_name": one_of("AnotherCluster"),
            "cluster": one_of("AnotherCluster"),
            "ha_server_addr": one_of("192.0.2.2:10912"),
            "heartbeat_timeout_millis": one_of(120_000),
            "namespace": one_of("ORDER_TOPIC_CONFIG", "fuzz"),
            "value": one_of("x", "a:4;b:4"),
            "query": one_of("q1", "q2"),
            "partition": one_of(0, 1),
            "shards": one_of(1, 4),
            "first_sequence": one_of(0, 0, 1),
            "digest_before": one_of(0, -1),
            "digest_after": one_of(0, -1, 12345),
            "config_path": one_of("x.conf"),
            "attempt_id": one_of("attempt-1"),
            "born_host": one_of("127.0.0.1:1"),
            "store_host": one_of("127.0.0.1:2"),
            "read_ahead_mode": one_of(0, 1),
        }
        for name in ("consumer_group", "producer_group", "group", "group_name", "src_group", "dest_group"):
            table[name] = self.group
        for name in ("timestamp", "born_timestamp", "born_time", "store_timestamp", "check_store_time"):
            table[name] = self.moment
        table["compare_group"] = table["filter_groups"] = self.group
        return table
