import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;

/**
 * Puts a fixed list of questions to a name server, with Apache's own client, codecs and registration bodies, and
 * prints every answer as one line of JSON. Two name servers are alike when the lines are. The interview cleans up
 * after itself, so it can be held again with the same server. Usage: Interview ADDRESS
 */
public class Interview {
    private static final String CLUSTER = "InterviewCluster";
    private static final long PATIENCE_MILLIS = 3000;

    private final String namesrv;
    private final NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());

    private Interview(String namesrv) {
        this.namesrv = namesrv;
        client.start();
    }

    public static void main(String[] args) throws Exception {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        Impatience.begin();
        Interview interview = new Interview(args[0]);
        interview.keyValues();
        interview.registration();
        interview.routes();
        interview.dataVersion();
        interview.groups();
        interview.permissionsAndTopics();
        interview.zones();
        interview.removal();
        interview.actingMaster();
        interview.configuration();
        interview.unexpected();
        System.out.flush();
        System.exit(0);
    }

    private void keyValues() throws Exception {
        step("kv: get a missing key", ask(RequestCode.GET_KV_CONFIG, "namespace", "Talk", "key", "none"));
        step("kv: list a missing namespace", ask(RequestCode.GET_KVLIST_BY_NAMESPACE, "namespace", "Silence"));
        step("kv: put", ask(RequestCode.PUT_KV_CONFIG, "namespace", "Talk", "key", "k", "value", "a/b \"c\" é€"));
        step("kv: get", ask(RequestCode.GET_KV_CONFIG, "namespace", "Talk", "key", "k"));
        step("kv: list", ask(RequestCode.GET_KVLIST_BY_NAMESPACE, "namespace", "Talk"));
        step("kv: delete", ask(RequestCode.DELETE_KV_CONFIG, "namespace", "Talk", "key", "k"));
        step("kv: delete again", ask(RequestCode.DELETE_KV_CONFIG, "namespace", "Talk", "key", "k"));
        step("kv: list an emptied namespace", ask(RequestCode.GET_KVLIST_BY_NAMESPACE, "namespace", "Talk"));
    }

    private void registration() throws Exception {
        FakeBroker broker = broker("plain", 0, "10.0.0.1:1091", topic("P1"), topic("P2"));
        step("register: a first registration with a single topic", broker.register(broker.topics.subList(0, 1)));
        step("register: with a JSON body", broker.register());
        step("register: route of it", route("P1"));
        TopicConfig third = FakeBroker.topic("P3", 2, 4, 0);
        step("register: one topic more, in a partial table", broker.changed(2).register(List.of(third)));
        step("register: route of the topic that came later", route("P3"));
        step("register: route of a topic that was left out", route("P2"));

        FakeBroker packed = broker("packed", 0, "10.0.0.2:1091", topic("C1"), FakeBroker.topic("C2", 8, 6, 0));
        packed.compressed = true;
        packed.wrongChecksum = true;
        step("register: compressed, wrong checksum", packed.register());
        step("register: route after a wrong checksum", route("C2"));
        packed.wrongChecksum = false;
        step("register: compressed", packed.register());
        step("register: route of the compressed one", route("C2"));

        putOrder("P1", "plain:4");
        step("register: answer with order topics", broker.register());
        step("register: forget the order topic",
            ask(RequestCode.DELETE_KV_CONFIG, "namespace", "ORDER_TOPIC_CONFIG", "key", "P1"));
        leave(broker, "P1");
        leave(packed, "C1");
    }

    private void routes() throws Exception {
        FakeBroker broker = broker("routed", 0, "10.0.0.3:1091", topic("R1"), topic("R2"));
        broker.filterServers = List.of("10.0.0.9:1", "10.0.0.9:2");
        broker.register();
        step("route: of a client before V4_9_4", route("R1", "version", "300"));
        step("route: of the last client before V4_9_4", route("R1", "version", "400"));
        step("route: of the first V4_9_4 client", route("R1", "version", "401"));
        step("route: of an old client that wants standard JSON",
            route("R1", "version", "300", "acceptStandardJsonOnly", "true"));
        step("route: of a client of today", route("R1"));
        step("route: of an unknown topic", route("NoSuchTopic"));
        putOrder("R1", "routed:4");
        step("route: with order topics switched off", route("R1"));
        configure("orderMessageEnable=true\n");
        step("route: with an order topic", route("R1"));
        step("route: with an order topic, old client", route("R1", "version", "300"));
        configure("orderMessageEnable=false\n");
        step("route: forget the order topic",
            ask(RequestCode.DELETE_KV_CONFIG, "namespace", "ORDER_TOPIC_CONFIG", "key", "R1"));
        leave(broker, "R1");
    }

    private void dataVersion() throws Exception {
        FakeBroker broker = broker("versioned", 0, "10.0.0.4:1091", topic("V1"), topic("V2"));
        step("version: of an unknown broker", version(broker));
        step("version: heartbeat of an unknown broker", broker.askAboutMe(RequestCode.BROKER_HEARTBEAT, null));
        broker.register();
        step("version: unchanged", version(broker));
        step("version: changed", version(broker.changed(2)));
        step("version: heartbeat", broker.askAboutMe(RequestCode.BROKER_HEARTBEAT, null));
        leave(broker, "V1");
    }

    private void groups() throws Exception {
        FakeBroker master = broker("grouped", 0, "10.0.0.5:1091", topic("G1"), topic("G2"));
        FakeBroker slave = broker("grouped", 1, "10.0.0.6:1091", topic("G1"), topic("G2"));
        step("group: a slave before its master", slave.register());
        step("group: route without a master", route("G1"));
        step("group: the master", master.register());
        step("group: the slave again", slave.register());
        slave.actingMaster = null;
        step("group: a slave of an old release", slave.register());
        step("group: route of both", route("G1"));
        step("group: members", ask(RequestCode.GET_BROKER_MEMBER_GROUP, "clusterName", CLUSTER, "brokerName", "grouped"));
        step("group: members of an unknown broker",
            ask(RequestCode.GET_BROKER_MEMBER_GROUP, "clusterName", CLUSTER, "brokerName", "nobody"));
        step("group: cluster info", ask(RequestCode.GET_BROKER_CLUSTER_INFO));

        FakeBroker promoted = broker("grouped", 0, "10.0.0.6:1091", topic("G1"), topic("G2"));
        step("group: the slave's address as master", promoted.register());
        step("group: cluster info after the promotion", ask(RequestCode.GET_BROKER_CLUSTER_INFO));
        FakeBroker newer = broker("grouped", 0, "10.0.0.7:1091", topic("G1"), topic("G2"));
        newer.version.setStateVersion(5);
        step("group: a master of a later epoch", newer.register());
        step("group: the master of the earlier epoch again", promoted.register());
        step("group: cluster info after both", ask(RequestCode.GET_BROKER_CLUSTER_INFO));
        leave(newer, "G1");
    }

    private void permissionsAndTopics() throws Exception {
        FakeBroker broker = broker("admin", 0, "10.0.0.8:1091", topic("A1"), FakeBroker.topic("A2", 4, 4, 0),
            FakeBroker.topic("U1", 4, 6, 1), FakeBroker.topic("U2", 4, 6, 2), FakeBroker.topic("U3", 4, 6, 3));
        broker.register();
        step("topics: all", ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER));
        step("topics: of the cluster", ask(RequestCode.GET_TOPICS_BY_CLUSTER, "cluster", CLUSTER));
        step("topics: of an unknown cluster", ask(RequestCode.GET_TOPICS_BY_CLUSTER, "cluster", "Nowhere"));
        step("topics: of the system", ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS));
        step("topics: unit", ask(RequestCode.GET_UNIT_TOPIC_LIST));
        step("topics: with unit subscriptions", ask(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST));
        step("topics: with unit subscriptions, not unit", ask(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST));
        step("permission: wipe", ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, "brokerName", "admin"));
        step("permission: wipe an unknown broker", ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, "brokerName", "nobody"));
        step("permission: route after the wipe", route("A1"));
        step("permission: add", ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, "brokerName", "admin"));
        step("permission: add to an unknown broker", ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, "brokerName", "nobody"));
        step("permission: route of a read-only topic after the addition", route("A2"));
        step("topics: register one", registerTopic("N1", "admin"));
        step("topics: route of the registered one", route("N1"));
        step("topics: register one of an unknown broker", registerTopic("N2", "nobody"));
        step("topics: route of one of an unknown broker", route("N2"));
        step("topics: delete in another cluster",
            ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, "topic", "N1", "clusterName", "Nowhere"));
        step("topics: route after a deletion elsewhere", route("N1"));
        step("topics: delete in its cluster",
            ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, "topic", "N1", "clusterName", CLUSTER));
        step("topics: route after the deletion", route("N1"));
        step("topics: delete everywhere", ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, "topic", "A1"));
        step("topics: route after the deletion everywhere", route("A1"));
        leave(broker, "A2");
    }

    private void zones() throws Exception {
        FakeBroker broker = broker("zoned", 0, "10.0.1.1:1091", topic("Z1"), topic("Z2"));
        broker.zone = "east";
        broker.register();
        step("zone: route", route("Z1"));
        step("zone: route in the same zone", route("Z1", "__ZONE_MODE", "true", "__ZONE_NAME", "EAST"));
        step("zone: route in another zone", route("Z1", "__ZONE_MODE", "true", "__ZONE_NAME", "west"));
        leave(broker, "Z1");
    }

    private void removal() throws Exception {
        FakeBroker master = broker("leaving", 0, "10.0.1.2:1091", topic("L1"), topic("L2"));
        FakeBroker slave = broker("leaving", 1, "10.0.1.3:1091", topic("L1"), topic("L2"));
        master.register();
        slave.register();
        step("removal: unregister the slave", slave.askAboutMe(RequestCode.UNREGISTER_BROKER, null));
        waitFor("removal: the slave's address leaves the route", () -> !body(route("L1")).contains("10.0.1.3"));
        step("removal: route without the slave", route("L1"));
        master.vanish();
        waitFor("removal: a closed connection takes the route away", () -> route("L1").getCode() == 17);
        step("removal: cluster info after the last broker", ask(RequestCode.GET_BROKER_CLUSTER_INFO));
        step("removal: unregister a broker that is gone", slave.askAboutMe(RequestCode.UNREGISTER_BROKER, null));
    }

    private void actingMaster() throws Exception {
        configure("supportActingMaster=true\n");
        FakeBroker master = broker("acting", 0, "10.0.1.4:1091", topic("M1"), topic("M2"));
        FakeBroker slave = broker("acting", 1, "10.0.1.5:1091", topic("M1"), topic("M2"));
        master.actingMaster = true;
        slave.actingMaster = true;
        master.register();
        slave.register();
        step("acting: route of both", route("M1"));
        step("acting: unregister the master", master.askAboutMe(RequestCode.UNREGISTER_BROKER, null));
        waitFor("acting: the master's address leaves the route", () -> !body(route("M1")).contains("10.0.1.4"));
        step("acting: the slave stands in, read-only", route("M1"));
        step("acting: members", ask(RequestCode.GET_BROKER_MEMBER_GROUP, "clusterName", CLUSTER, "brokerName", "acting"));
        leave(slave, "M1");
        configure("supportActingMaster=false\n");
    }

    private void configuration() throws Exception {
        step("config: forbidden key", configure("kvConfigPath=/elsewhere\norderMessageEnable=true\n"));
        step("config: malformed", configure("orderMessageEnable=\\u00zz\n"));
        step("config: empty", configure(""));
        step("config: unknown key", configure("noSuchKey=1\n"));
        configure("enableAllTopicList=false\nenableTopicList=false\n");
        step("config: all topics disabled", ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER));
        step("config: topics of a cluster disabled", ask(RequestCode.GET_TOPICS_BY_CLUSTER, "cluster", CLUSTER));
        step("config: unit topics disabled", ask(RequestCode.GET_UNIT_TOPIC_LIST));
        step("config: system topics are not disabled", ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS));
        configure("enableAllTopicList=true\nenableTopicList=true\n");
        configure("needWaitForService=true\nwaitSecondsForService=100000\n");
        step("config: route before the service is ready", route("NoSuchTopic"));
        configure("needWaitForService=false\nwaitSecondsForService=45\n");
        step("config: whole text", ask(RequestCode.GET_NAMESRV_CONFIG));
    }

    private void unexpected() throws Exception {
        step("unexpected: unknown code", ask(999));
        step("unexpected: a broker's code", ask(RequestCode.SEND_MESSAGE_V2));
        step("unexpected: registration without fields", ask(RequestCode.REGISTER_BROKER));
        FakeBroker broker = broker("broken", 0, "10.0.1.6:1091", topic("B1"), topic("B2"));
        step("unexpected: a body that is no registration", broker.ask(RequestCode.REGISTER_BROKER, "{garbage".getBytes(),
            "clusterName", CLUSTER, "brokerName", "broken", "brokerAddr", broker.address, "brokerId", "0",
            "haServerAddr", "10.0.1.6:1092", "compressed", "false"));
        step("unexpected: a compressed body that is not", broker.ask(RequestCode.REGISTER_BROKER, "garbage".getBytes(),
            "clusterName", CLUSTER, "brokerName", "broken", "brokerAddr", broker.address, "brokerId", "0",
            "haServerAddr", "10.0.1.6:1092", "compressed", "true"));
        step("unexpected: nothing came of it", ask(RequestCode.GET_BROKER_CLUSTER_INFO));
    }

    private FakeBroker broker(String name, long id, String address, TopicConfig... topics) {
        return new FakeBroker(namesrv, CLUSTER, name, id, address, topics);
    }

    private static TopicConfig topic(String name) {
        return FakeBroker.topic(name, 4, 6, 0);
    }

    private RemotingCommand ask(int code, String... fields) throws Exception {
        return FakeBroker.ask(client, namesrv, code, null, fields);
    }

    private RemotingCommand route(String topic, String... more) throws Exception {
        String[] fields = new String[more.length + 2];
        System.arraycopy(more, 0, fields, 2, more.length);
        fields[0] = "topic";
        fields[1] = topic;
        return ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields);
    }

    private RemotingCommand version(FakeBroker broker) throws Exception {
        return broker.askAboutMe(RequestCode.QUERY_DATA_VERSION, broker.version.encode());
    }

    private void putOrder(String topic, String value) throws Exception {
        ask(RequestCode.PUT_KV_CONFIG, "namespace", "ORDER_TOPIC_CONFIG", "key", topic, "value", value);
    }

    private RemotingCommand registerTopic(String topic, String brokerName) throws Exception {
        String queues = "{\"queueDatas\":[{\"brokerName\":\"" + brokerName
            + "\",\"perm\":6,\"readQueueNums\":3,\"topicSysFlag\":0,\"writeQueueNums\":2}]}";
        return FakeBroker.ask(client, namesrv, RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            queues.getBytes(StandardCharsets.UTF_8), "topic", topic);
    }

    private RemotingCommand configure(String properties) throws Exception {
        return FakeBroker.ask(client, namesrv, RequestCode.UPDATE_NAMESRV_CONFIG,
            properties.getBytes(StandardCharsets.UTF_8));
    }

    private void leave(FakeBroker broker, String topic) throws Exception {
        broker.askAboutMe(RequestCode.UNREGISTER_BROKER, null);
        waitFor("removal: " + broker.name + " leaves", () -> route(topic).getCode() == 17);
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void waitFor(String what, Condition condition) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MILLIS;
        boolean holds = condition.holds();
        while (!holds && System.currentTimeMillis() < deadline) {
            Thread.sleep(10);
            holds = condition.holds();
        }
        print(what, Map.of("holds", holds));
    }

    private static String body(RemotingCommand answer) {
        return answer.getBody() == null ? "" : new String(answer.getBody(), StandardCharsets.UTF_8);
    }

    private static void step(String what, RemotingCommand answer) {
        Map<String, Object> told = new TreeMap<>();
        told.put("code", answer.getCode());
        told.put("remark", answer.getRemark());
        told.put("fields", answer.getExtFields() == null ? Map.of() : new TreeMap<>(answer.getExtFields()));
        told.put("body", answer.getBody() == null ? null : body(answer));
        print(what, told);
    }

    private static void print(String what, Map<String, Object> told) {
        Map<String, Object> line = new TreeMap<>(told);
        line.put("step", what);
        System.out.println(JSON.toJSONString(line, SerializerFeature.WriteMapNullValue));
    }
}
