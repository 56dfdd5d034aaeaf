"""Apache's `mqadmin` gives the same answers on our cluster as on Apache's.

The same commands, in the same order, run on two clusters that were put into the same state: a name server and
a broker of Apache's, and ours. What they print and write is compared as a whole, stack traces of refusals
included.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from cometmq.model.newer_settings import REASONS
from tests.compat.admin.admin_kit import AdminCluster, Step, fill, running_admin_cluster
from tests.compat.apache import (
    PATIENT,
    AdminShell,
    ApacheBroker,
    ApacheNamesrv,
    CometBroker,
    CometNamesrv,
)
from tests.compat.cluster import side_by_side
from tests.compat.jvm import OLDEST, RELEASE

SETTINGS = {**PATIENT, "traceTopicEnable": "true"}

RATE = r" *\b\d+\.\d+(E-?\d+)?\b"
SPENT = r"spentTimeMills=\d+"
STATUS_MEASURED = (
    r"(?m)(?<!\w)(bootTimestamp|runtime|commitLogDirCapacity|commitLogDiskRatio\S*|consumeQueueDiskRatio|"
    r"get\w+Tps|putTps|\w+EntireTimeMax|remainHowManyDataToFlush|putMessageDistributeTime|putLatency999?|"
    r"timer(Read|Offset)Behind) *:.*",
)
RUNNING_MEASURED = (RATE, r"@[0-9a-f]{5,8}\b", r"Lambda\S+", r"last\w+Timestamp=\d+", r"(?<=: )20\d{12}")

# Apache's broker notes a topic that is subscribed to among its own groups. There is no such group.
NO_SUCH_GROUP = (
    r"(?m)^(DefaultCluster +)?Parade +Parade .*\n",
    r"MessageTrack \[consumerGroup=Parade,[^]]*\]\n?",
)
# Our broker says that a group begins at 0 in a queue that has had no message, where Apache's says nothing;
# the client then commits that.
EMPTY_RETRIES = (r"(?m)^%RETRY%readers .*\n", r".* of %RETRY%readers before it.*\n")
# Apache sizes two thread pools by the machine and its bloom filter by two other settings, and does not show
# the path of its file; the last keys are ours.
OWN_SETTINGS = (
    r"(?m)^(sendMessageThreadPoolNums|putMessageFutureThreadPoolNums|bitMapLengthConsumeQueueExt|"
    r"brokerConfigPath|rejectInconsistentSubscription|max(AutoCreate)?(Topics|SubscriptionGroups)|"
    r"haAllowedReplicas|recoverWhatIsLeft) .*\n",
)

# What newer releases print otherwise on their own brokers.
NEWER = {
    "addWritePerm": "two system topics more",
    "brokerStatus": "no version number",
    "exportMetadata": "groups that were only asked about",
    "getBrokerConfig": "more settings",
    "getColdDataFlowCtrInfo": "another order of keys",
    "statsAll": "two system topics more",
    "topicList": "two system topics more",
    "wipeWritePerm": "two system topics more",
}

TRACED = Step(
    "sendMessage -t Parade -p hello -k greeting -c green -b broker-a -i 0 -m true",
    "SEND_OK",
    keeps=("sent", r"([0-9A-F]{32,})"),
)
TRACE = Step("queryMsgTraceById -i {sent}", "Pub", awaits=True, measured=(r"\d+ms *",))
SCRIPT = (
    # Statistics, while the messages are of the last minute.
    Step(
        "statsAll -t Parade",
        "<measured>             12             12",  # came in, and went out, which is counted later
        awaits=True,
        measured=(RATE,),
        without=NO_SUCH_GROUP,
        any_order=True,
    ),
    Step("statsAll", "Parade", measured=(RATE,), without=NO_SUCH_GROUP, any_order=True),
    Step(
        "topicStatus -t Parade",
        "broker-a                          3     0                     3",
        measured=(RATE,),
    ),
    Step("brokerStatus -b {broker}", "putMessageTimesTotal", measured=STATUS_MEASURED),
    Step("brokerStatus -c DefaultCluster", "putMessageTimesTotal", measured=STATUS_MEASURED),
    Step("exportMetrics -c DefaultCluster -f {folder}", "success", measured=(RATE,), file="metrics.json"),
    # The cluster
    Step("clusterList", "broker-a", measured=(RATE, r"\d+-\d+\(.*?\)")),
    Step("clusterList -m", "broker-a", measured=(RATE,)),
    Step("getBrokerConfig -b {broker}", "brokerRole", without=OWN_SETTINGS, any_order=True),
    Step("getBrokerConfig -c DefaultCluster", "brokerRole", without=OWN_SETTINGS, any_order=True),
    Step("getBrokerEpoch -b broker-a", "only for controllerMode"),
    Step("getBrokerEpoch -c DefaultCluster", "only for controllerMode"),
    Step("exportConfigs -c DefaultCluster -f {folder}", "success", file="configs.json"),
    # Clients
    Step("consumerConnection -g readers", "Parade"),
    Step("consumerConnection -g readers -b {broker}", "Parade"),
    Step("consumerConnection -g sleepers", "not online"),
    Step("producerConnection -g painters -t Parade", "JAVA", awaits=True),
    Step("producerConnection -g nobody -t Parade", "not exist"),
    Step("producer -b {broker}", "painters"),
    Step("consumerStatus -g readers", "Rebalance OK"),
    Step("consumerStatus -g readers -i {reader}", "Parade", measured=RUNNING_MEASURED, without=EMPTY_RETRIES),
    Step("consumerStatus -g nobody", "CODE: 17"),
    Step("getConsumerConfig -g sleepers", "consumeEnable"),
    Step("getConsumerConfig -g nobody", ""),
    # Progress
    Step("consumerProgress", "sleepers", any_order=True, measured=(r"CLUSTERING +\d+",)),
    Step("consumerProgress -g readers", "Parade", any_order=True, measured=(RATE,), without=EMPTY_RETRIES),
    Step("consumerProgress -g sleepers", "Consume TPS", any_order=True, measured=(RATE,)),
    Step("consumerProgress -g sleepers -t Parade", "Parade", any_order=True, measured=(RATE,)),
    Step(
        "consumerProgress -g readers -s true",
        "Parade",
        any_order=True,
        measured=(RATE,),
        without=EMPTY_RETRIES,
    ),
    Step("consumerProgress -g nobody", "CODE: 17"),
    Step("brokerConsumeStats -b {broker}", "sleepers", any_order=True),
    Step("brokerConsumeStats -b {broker} -o true", "Diff Total: 0"),
    Step("brokerConsumeStats -b {broker} -l 3", "Diff Total"),
    Step("updateSubGroup -c DefaultCluster -g twins", "success"),
    Step("cloneGroupOffset -s sleepers -d twins -t Parade", "clone group offset success"),
    Step("brokerConsumeStats -b {broker}", "sleepers", any_order=True),
    Step("resetOffsetByTime -g sleepers -t Parade -s 0", "Parade", any_order=True),
    Step("resetOffsetByTime -g sleepers -t Parade -s -1", "Parade", any_order=True),
    Step("resetOffsetByTime -g sleepers -t Parade -s now", "Parade", any_order=True),
    Step("resetOffsetByTime -g sleepers -t Parade -s 2020-01-01#00:00:00:000", "Parade", any_order=True),
    Step(
        "resetOffsetByTime -g sleepers -t Parade -s now -b {broker} -q 1 -o 2", "reset consumer offset to 2"
    ),
    Step("resetOffsetByTime -g sleepers -t Parade -s now -b {broker} -q 1 -o 99", "99"),
    Step("resetOffsetByTime -g nobody -t Parade -s now", "command failed"),
    Step("resetOffsetByTime -g sleepers -t Nowhere -s now", "CODE: 17"),
    Step("skipAccumulatedMessage -g sleepers -t Parade", "broker-a", any_order=True),
    Step("skipAccumulatedMessage -g nobody -t Parade", "command failed"),
    Step("consumerProgress -g sleepers -t Parade", "Parade", any_order=True, measured=(RATE,)),
    Step("topicList -c", "Parade", any_order=True, without=NO_SUCH_GROUP),
    Step("startMonitoring", "round ends", any_order=True, without=EMPTY_RETRIES),
    # Messages
    Step("queryMsgById -t Parade -i {offset_id}", "MessageTrack", without=NO_SUCH_GROUP),
    Step("queryMsgById -t Parade -i 7F000001000000000000000000000000", "command failed"),
    Step("queryMsgById -t Parade -i {offset_id} -g readers -d {reader}", "CR_SUCCESS", measured=(SPENT,)),
    Step("queryMsgById -t Parade -i {offset_id} -g nobody -d nobody", "CODE: 17"),
    Step("queryMsgByUniqueKey -t Parade -i {unique_id}", "MessageTrack", without=NO_SUCH_GROUP),
    Step("queryMsgByUniqueKey -t Parade -i {unique_id} -a", "Parade", without=NO_SUCH_GROUP),
    Step(
        "queryMsgByUniqueKey -t Parade -i {unique_id} -g readers -d {reader}", "CR_SUCCESS", measured=(SPENT,)
    ),
    Step("queryMsgByUniqueKey -t Parade -i 00000000000000000000000000000000", "command failed"),
    Step("queryMsgByKey -t Parade -k key-3", "<id>    3"),
    Step("queryMsgByKey -t Parade -k no-such-key", "command failed"),
    Step("queryMsgByOffset -t Parade -b broker-a -i 1 -o 2", "key-9", without=NO_SUCH_GROUP),
    Step("queryMsgByOffset -t Parade -b broker-a -i 1 -o 99", ""),
    Step("queryCq -t Parade -q 1 -i 0 -c 5 -b {broker}", "max: 3, min: 0"),
    Step("queryCq -t Parade -q 1 -i 1 -c 1 -b {broker} -g readers", "Parade", measured=(r"subVersion=\d+",)),
    Step("queryCq -t Parade -q 1 -i 1 -c 1 -b {broker} -g sleepers", "not online"),
    Step("queryCq -t Parade -q 1 -i 99 -c 5 -b {broker}", "NullPointerException"),
    Step("queryCq -t Parade -q 9 -i 0 -c 5 -b {broker}", "9@Parade is not exist!"),
    Step("queryCq -t Nowhere -q 0 -i 0 -c 5 -b {broker}", "0@Nowhere is not exist!"),
    Step("printMsg -t Parade", "message 11", any_order=True),
    Step("printMsg -t Parade -s red -d false", "Parade", any_order=True),
    Step("printMsgByQueue -t Parade -a broker-a -i 2 -p true -d true", "message 10"),
    Step("printMsgByQueue -t Parade -a broker-a -i 2 -f true -s blue", "Count: 1"),
    Step("consumeMessage -t Parade", "message 11", any_order=True, awaits=True),
    Step("consumeMessage -t Parade -b broker-a -i 1 -o 1 -c 1", "message 5", awaits=True),
    Step("consumeMessage -t Parade -g sleepers", "Parade", any_order=True, awaits=True),
    TRACED,
    Step("sendMessage -t Parade -p hello -b broker-a -i 0", "SEND_OK"),
    Step("queryMsgByKey -t Parade -k greeting", "<id>    0", awaits=True),
    TRACE,
    Step("queryMsgTraceById -i none", "command failed"),
    Step("sendMsgStatus -b broker-a -s 16 -c 3", "SEND_OK", measured=(r"rt=\d+ms", r"queueOffset=\d+")),
    Step("checkMsgSendRT -t Parade -a 3 -s 16", "Avg RT", measured=(RATE, r"(?m)\d+ *$")),
    Step("until DefaultCluster clusterRT -a 2 -s 16 -i 1", "DefaultCluster", measured=(f"{RATE} *",)),
    Step("allocateMQ -t Parade -i 10.0.0.1,10.0.0.2,10.0.0.3", "10.0.0.3"),
    Step("allocateMQ -t Nowhere -i 10.0.0.1", "CODE: 17"),
    # Topics
    Step("topicList", "Parade", any_order=True),
    Step("topicRoute -t Parade", '"readQueueNums":4'),
    Step("topicClusterList -t Parade", "DefaultCluster"),
    Step("updateTopic -c DefaultCluster -t Fair -r 6 -w 4", "create topic to <broker> success."),
    Step("updateTopic -b {broker} -t Fair -r 2 -w 3 -p 4 -o true", "success"),
    Step("updateTopic -b {broker} -t Typed -a +message.type=FIFO", "success"),
    Step("updateTopic -b {broker} -t Typed -a +no.such=1", "CODE"),
    Step(
        "updateTopic -b {broker} -t bad!name", "CODE: 29", without=(r"(?<=The specified topic): bad!name,",)
    ),
    Step("updateTopic -b {broker} -t TBW102", "CODE: 29"),
    Step("updateTopicList -c DefaultCluster -f {folder}/topics.json", "success"),
    Step("updateTopicList -b {broker} -f {folder}/topics.json", "success"),
    Step("topicRoute -t Listed-2", '"perm":4', awaits=True),
    Step("updateTopicPerm -c DefaultCluster -t Fair -p 6", "update topic perm from 4 to 6"),
    Step("updateTopicPerm -b {broker} -t Fair -p 2", "update topic perm from 6 to 2"),
    Step("updateOrderConf -t Fair -m put -v broker-a:4", "update orderConf success"),
    Step("updateOrderConf -t Fair -m get", "broker-a:4"),
    Step("updateOrderConf -t Fair -m delete", "delete orderConf success"),
    Step("topicStatus -t Fair", "Topic Put TPS", measured=(RATE,)),
    Step("topicStatus -t Nowhere", "CODE: 17"),
    Step("deleteTopic -c DefaultCluster -t Fair", "delete topic [Fair] from NameServer success."),
    Step("topicRoute -t Fair", "CODE: 17"),
    Step("deleteTopic -c DefaultCluster -t Nowhere", "success"),
    # Groups
    Step("updateSubGroup -c DefaultCluster -g idle", "create subscription group to <broker> success."),
    Step(
        "updateSubGroup -b {broker} -g busy -s false -m true -d true -q 2 -r 3 -i 0 -w 2 -a false", "success"
    ),
    Step(
        "updateSubGroup -b {broker} -g patient -p "
        '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000}}',
        "success",
    ),
    Step("updateSubGroupList -c DefaultCluster -f {folder}/groups.json", "success"),
    Step("updateSubGroupList -b {broker} -f {folder}/groups.json", "success"),
    Step("getConsumerConfig -g busy", "retryMaxTimes                           =  3"),
    Step("getConsumerConfig -g patient", "EXPONENTIAL"),
    Step("getConsumerConfig -g listed-2", "retryMaxTimes                           =  3"),
    Step("deleteSubGroup -b {broker} -g busy", "success"),
    Step("deleteSubGroup -c DefaultCluster -g twins -r true", "success"),
    Step("deleteSubGroup -c DefaultCluster -g nobody", "success"),
    Step("setConsumeMode -b {broker} -t Parade -g idle -m POP -q 3", "success"),
    Step("setConsumeMode -c DefaultCluster -t Parade -g idle -m PULL", "success"),
    Step("setConsumeMode -c DefaultCluster -t Nowhere -g idle -m PULL", "CODE: 17"),
    Step("setConsumeMode -b {broker} -t %RETRY%idle -g idle -m POP", "CODE: 16"),
    Step("exportMetadata -c DefaultCluster -f {folder}", "success", file="metadata.json"),
    Step(
        "exportMetadata -b {broker} -f {folder} -t",
        "success",
        measured=(r"counter\":\d+",),
        file="topic.json",
    ),
    Step(
        "exportMetadata -b {broker} -f {folder} -g",
        "success",
        measured=(r"counter\":\d+",),
        file="subscriptionGroup.json",
    ),
    Step(
        "exportMetadata -c DefaultCluster -f {folder} -t -s",
        "success",
        measured=(r"counter\":\d+",),
        file="topic.json",
    ),
    # Settings and upkeep
    Step("updateBrokerConfig -b {broker} -k fileReservedTime -v 48", "success"),
    Step("updateBrokerConfig -c DefaultCluster -k transactionCheckMax -v 7", "success"),
    Step("updateBrokerConfig -b {broker} -k noSuchKey -v 1", "success"),
    Step("updateBrokerConfig -b {broker} -k brokerConfigPath -v elsewhere", "CODE: 16"),
    Step("updateBrokerConfig -b {broker} -k brokerPermission -v 4", "success"),
    Step("topicRoute -t Parade", '"perm":4', awaits=True),
    Step("updateBrokerConfig -b {broker} -k brokerPermission -v 6", "success"),
    Step(
        "getBrokerConfig -b {broker}",
        "fileReservedTime                                  =  48",
        without=OWN_SETTINGS,
        any_order=True,
    ),
    Step("getColdDataFlowCtrInfo -b {broker}", '"configTable":{}', any_order=True),
    Step("updateColdDataFlowCtrGroupConfig -b {broker} -g readers -v 1000", "success"),
    Step("getColdDataFlowCtrInfo -c DefaultCluster", "readers", any_order=True),
    Step("removeColdDataFlowCtrGroupConfig -b {broker} -g readers", "success"),
    Step("getColdDataFlowCtrInfo -b {broker}", '"configTable":{}', any_order=True),
    Step("setCommitLogReadAheadMode -b {broker} -m 1", "success, mode: 1"),
    Step("setCommitLogReadAheadMode -c DefaultCluster -m 0", "success, mode: 0"),
    Step("setCommitLogReadAheadMode -b {broker} -m 7", "error"),
    Step("cleanExpiredCQ -b {broker}", "success"),
    Step("cleanExpiredCQ -c DefaultCluster", "success"),
    Step("cleanUnusedTopic -b {broker}", "success"),
    Step("cleanUnusedTopic -c DefaultCluster", "success"),
    Step("deleteExpiredCommitLog -b {broker}", "success"),
    Step("deleteExpiredCommitLog -c DefaultCluster", "success"),
    # The name server
    Step("getNamesrvConfig", "clusterTest", any_order=True),
    Step("updateNamesrvConfig -k orderMessageEnable -v true", "update name server config success!"),
    Step("updateKvConfig -s Settings -k colour -v blue", "success"),
    Step("deleteKvConfig -s Settings -k colour", "success"),
    Step("wipeWritePerm -b broker-a", "OK"),
    Step("addWritePerm -b broker-a", "OK"),
)


def settings_in(printed: str) -> set[str]:
    return set(re.findall(r"(?m)^(\w+) +=", printed))


def play(home: Path) -> list[tuple[str, str]]:
    """What each step printed: on Apache's cluster, and on ours."""
    is_ours = os.environ.get("COMPAT_SUBJECT") != "apache"
    with ExitStack() as stack:
        shell = stack.enter_context(AdminShell(home / "shell"))

        def start(kind: str, *, ours: bool) -> AdminCluster:
            namesrv = (CometNamesrv if ours else ApacheNamesrv)(home / kind / "namesrv")
            broker = (CometBroker if ours else ApacheBroker)(
                home / kind / "broker", namesrv.address, settings=SETTINGS
            )
            return stack.enter_context(running_admin_cluster(home / kind / "files", namesrv, broker, shell))

        apache, ours = side_by_side(
            lambda: start("apache", ours=False), lambda: start("subject", ours=is_ours)
        )
        # At the same time, so that the statistics of both are of the same minute.
        side_by_side(lambda: fill(apache), lambda: fill(ours))

        def run(step: Step) -> tuple[str, str]:
            return apache.run(step), ours.run(step)

        def run_with_trace(step: Step) -> tuple[str, str]:
            printed = run(step)
            if step is TRACE and not all(step.shows in each for each in printed):
                run(TRACED)  # the command gives a trace up that is not sent within half a second
                printed = run(step)
            return printed

        return [run_with_trace(step) for step in SCRIPT]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    return play(tmp_path_factory.mktemp("admin"))


@pytest.mark.parametrize(
    "number", range(len(SCRIPT)), ids=[f"{i:03}-{step.id}" for i, step in enumerate(SCRIPT)]
)
def test_mqadmin_prints_the_same(outputs: list[tuple[str, str]], number: int) -> None:
    """B9, B13, N9: each administration command prints what it prints on Apache's cluster."""
    apache, ours = outputs[number]
    shows, command = SCRIPT[number].shows, SCRIPT[number].command.split()[0]
    assert shows in apache if shows else not apache
    if RELEASE == OLDEST or command not in NEWER:
        assert ours == apache
    else:
        assert shows in ours
    if command == "getBrokerConfig":
        assert settings_in(apache) - settings_in(ours) <= REASONS.keys()
