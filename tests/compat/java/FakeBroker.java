import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.DataVersion;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.body.RegisterBrokerBody;
import org.apache.rocketmq.remoting.protocol.header.namesrv.RegisterBrokerRequestHeader;

/** A broker that only registers: Apache's own registration body and header on a connection of its own. */
public class FakeBroker {
    private static final long TIMEOUT_MILLIS = 5000;

    final String cluster;
    final String name;
    final long id;
    final String address;
    final DataVersion version = new DataVersion();
    final List<TopicConfig> topics;
    List<String> filterServers = List.of();
    boolean compressed = false;
    boolean wrongChecksum = false;
    Boolean actingMaster = Boolean.FALSE;
    String zone = null;
    private final String namesrv;
    private final NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());

    FakeBroker(String namesrv, String cluster, String name, long id, String address, TopicConfig... topics) {
        this.namesrv = namesrv;
        this.cluster = cluster;
        this.name = name;
        this.id = id;
        this.address = address;
        this.topics = List.of(topics);
        changed(1);
        client.start();
    }

    static TopicConfig topic(String name, int queues, int perm, int sysFlag) {
        return new TopicConfig(name, queues, queues, perm, sysFlag);
    }

    FakeBroker changed(long counter) {
        version.setTimestamp(1700000000000L);
        version.setCounter(new AtomicLong(counter));
        return this;
    }

    RemotingCommand register() throws Exception {
        return register(topics);
    }

    RemotingCommand register(List<TopicConfig> sent) throws Exception {
        RegisterBrokerBody body = new RegisterBrokerBody();
        body.getTopicConfigSerializeWrapper().setDataVersion(version);
        ConcurrentMap<String, TopicConfig> table = new ConcurrentHashMap<>();
        sent.forEach(topic -> table.put(topic.getTopicName(), topic));
        body.getTopicConfigSerializeWrapper().setTopicConfigTable(table);
        body.setFilterServerList(filterServers);
        byte[] bytes = body.encode(compressed);

        RegisterBrokerRequestHeader header = new RegisterBrokerRequestHeader();
        header.setClusterName(cluster);
        header.setBrokerName(name);
        header.setBrokerId(id);
        header.setBrokerAddr(address);
        header.setHaServerAddr(address + "9");
        header.setEnableActingMaster(actingMaster);
        header.setCompressed(compressed);
        header.setBodyCrc32(UtilAll.crc32(bytes) + (wrongChecksum ? 1 : 0));

        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.REGISTER_BROKER, header);
        request.setBody(bytes);
        if (zone != null) {
            request.addExtField("__ZONE_NAME", zone);
        }
        return client.invokeSync(namesrv, request, TIMEOUT_MILLIS);
    }

    RemotingCommand ask(int code, byte[] body, String... fields) throws Exception {
        return ask(client, namesrv, code, body, fields);
    }

    /** A request about this broker, with the fields that name it. */
    RemotingCommand askAboutMe(int code, byte[] body) throws Exception {
        return ask(code, body, "clusterName", cluster, "brokerName", name, "brokerAddr", address,
            "brokerId", String.valueOf(id));
    }

    static RemotingCommand ask(NettyRemotingClient client, String namesrv, int code, byte[] body, String... fields)
        throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        for (Map.Entry<String, String> field : pairs(fields).entrySet()) {
            if (field.getKey().equals("version")) {
                request.setVersion(Integer.parseInt(field.getValue()));
            } else {
                request.addExtField(field.getKey(), field.getValue());
            }
        }
        request.setBody(body);
        return client.invokeSync(namesrv, request, TIMEOUT_MILLIS);
    }

    static Map<String, String> pairs(String... fields) {
        Map<String, String> table = new TreeMap<>();
        for (int i = 0; i < fields.length; i += 2) {
            table.put(fields[i], fields[i + 1]);
        }
        return table;
    }

    /** Closes the connection without a word. */
    void vanish() {
        client.shutdown();
    }
}
