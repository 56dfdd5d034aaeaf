import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pull consumers of both kinds: the one that is told offsets, and the one that polls what it is assigned. */
final class DriverPulls {
    private final Map<String, DefaultMQPullConsumer> pullers = new ConcurrentHashMap<>();
    private final Map<String, DefaultLitePullConsumer> pollers = new ConcurrentHashMap<>();

    void addTo(Map<String, ClientDriver.Command> commands) {
        commands.put("puller", this::startPuller);
        commands.put("pull", this::pull);
        commands.put("updateOffset", this::updateOffset);
        commands.put("fetchOffset", args -> puller(args).fetchConsumeOffset(queue(args), true));
        commands.put("sendBack", this::sendBack);
        commands.put("lite", this::startPoller);
        commands.put("poll", args -> DriverJson.received(poller(args).poll(args.getLongValue("millis"))));
        commands.put("seek", this::seek);
        commands.put("pause", this::pause);
        commands.put("resume", this::resume);
        commands.put("commit", this::commit);
        commands.put("committed", args -> poller(args).committed(queue(args)));
        commands.put("assignment", args -> queues(poller(args)));
        commands.put("offsetAt", args -> poller(args).offsetForTimestamp(queue(args), args.getLong("timestamp")));
        commands.put("stopLite", this::stopPoller);
    }

    private DefaultMQPullConsumer puller(JSONObject args) {
        return pullers.get(args.getString("name"));
    }

    private DefaultLitePullConsumer poller(JSONObject args) {
        return pollers.get(args.getString("name"));
    }

    private static MessageQueue queue(JSONObject args) {
        return DriverJson.queue(args.getString("topic"), args);
    }

    private Object startPuller(JSONObject args) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(args.getString("group"));
        ClientDriver.prepare(consumer);
        consumer.start();
        pullers.put(args.getString("name"), consumer);
        return consumer.buildMQClientId();
    }

    private Object pull(JSONObject args) throws Exception {
        long offset = args.getLongValue("offset");
        int max = args.getIntValue("max");
        PullResult result;
        if (args.containsKey("sql")) {
            result = puller(args).pull(queue(args), MessageSelector.bySql(args.getString("sql")), offset, max);
        } else if (args.getBooleanValue("waiting")) {
            result = puller(args).pullBlockIfNotFound(queue(args), args.getString("tags"), offset, max);
        } else {
            result = puller(args).pull(queue(args), args.getString("tags"), offset, max);
        }
        JSONObject told = new JSONObject(true);
        told.put("status", result.getPullStatus().name());
        told.put("next", result.getNextBeginOffset());
        told.put("min", result.getMinOffset());
        told.put("max", result.getMaxOffset());
        told.put("messages", result.getMsgFoundList() == null ? new JSONArray() : DriverJson.received(result.getMsgFoundList()));
        return told;
    }

    private Object updateOffset(JSONObject args) throws Exception {
        puller(args).updateConsumeOffset(queue(args), args.getLongValue("offset"));
        puller(args).getDefaultMQPullConsumerImpl().getOffsetStore().persistAll(java.util.Set.of(queue(args)));
        return true;
    }

    private Object sendBack(JSONObject args) throws Exception {
        PullResult result = puller(args).pull(queue(args), "*", args.getLongValue("offset"), 1);
        puller(args).sendMessageBack(result.getMsgFoundList().get(0), args.getIntValue("delayLevel"));
        return true;
    }

    private Object startPoller(JSONObject args) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(args.getString("group"));
        ClientDriver.prepare(consumer);
        consumer.setAutoCommit(args.getBooleanValue("autoCommit"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(ClientDriver.HEARTBEAT_MILLIS);
        if (args.containsKey("batch")) {
            consumer.setPullBatchSize(args.getIntValue("batch"));
        }
        JSONArray assigned = args.getJSONArray("assigned");
        if (assigned == null && args.containsKey("sql")) {
            consumer.subscribe(args.getString("topic"), MessageSelector.bySql(args.getString("sql")));
        } else if (assigned == null) {
            consumer.subscribe(args.getString("topic"), args.getString("tags"));
        }
        consumer.start();
        if (assigned != null) {
            List<MessageQueue> queues = new ArrayList<>();
            assigned.forEach(one -> queues.add(DriverJson.queue(args.getString("topic"), (JSONObject) one)));
            consumer.assign(queues);
        }
        pollers.put(args.getString("name"), consumer);
        return consumer.buildMQClientId();
    }

    private Object seek(JSONObject args) throws Exception {
        if (args.containsKey("offset")) {
            poller(args).seek(queue(args), args.getLongValue("offset"));
        } else if (args.getBooleanValue("end")) {
            poller(args).seekToEnd(queue(args));
        } else {
            poller(args).seekToBegin(queue(args));
        }
        return true;
    }

    private Object pause(JSONObject args) {
        poller(args).pause(List.of(queue(args)));
        return true;
    }

    private Object resume(JSONObject args) {
        poller(args).resume(List.of(queue(args)));
        return true;
    }

    private Object commit(JSONObject args) {
        poller(args).commitSync();
        return true;
    }

    private Object stopPoller(JSONObject args) {
        pollers.remove(args.getString("name")).shutdown();
        return true;
    }

    private static JSONArray queues(DefaultLitePullConsumer consumer) throws Exception {
        JSONArray array = new JSONArray();
        consumer.assignment().forEach(queue -> array.add(DriverJson.queue(queue)));
        return array;
    }
}
