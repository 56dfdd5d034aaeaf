import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What the client and its administration ask a broker: messages by key and id, offsets, members of a group. */
final class DriverQueries {
    private static final long LATER_MILLIS = 86_400_000;

    private DefaultMQAdminExt admin;

    void addTo(Map<String, ClientDriver.Command> commands) {
        commands.put("byKey", args -> DriverJson.received(admin().queryMessage(args.getString("topic"), args.getString("key"),
            args.getIntValue("max"), 0, System.currentTimeMillis() + LATER_MILLIS).getMessageList()));
        commands.put("byId", args -> DriverJson.received(admin().viewMessage(args.getString("topic"), args.getString("msgId"))));
        commands.put("bounds", this::bounds);
        commands.put("offsetByTime", args -> admin().searchOffset(
            DriverJson.queue(args.getString("topic"), args), args.getLongValue("timestamp")));
        commands.put("progress", this::progress);
        commands.put("resetOffset", this::resetOffset);
        commands.put("members", this::members);
        commands.put("consumeDirectly", args -> admin().consumeMessageDirectly(args.getString("group"),
            args.getString("clientId"), args.getString("topic"), args.getString("msgId")).getConsumeResult().name());
        commands.put("runningInfo", args -> new TreeSet<>(admin().getConsumerRunningInfo(args.getString("group"),
            args.getString("clientId"), false).getProperties().stringPropertyNames()));
    }

    private synchronized DefaultMQAdminExt admin() throws Exception {
        if (admin == null) {
            DefaultMQAdminExt made = new DefaultMQAdminExt();
            ClientDriver.prepare(made);
            made.start();
            admin = made;
        }
        return admin;
    }

    /** Minimum and maximum offset of every queue. */
    private Object bounds(JSONObject args) throws Exception {
        JSONArray told = new JSONArray();
        for (MessageQueue queue : new TreeSet<>(queuesOf(args.getString("topic")))) {
            JSONObject one = DriverJson.queue(queue);
            one.put("min", admin().minOffset(queue));
            one.put("max", admin().maxOffset(queue));
            told.add(one);
        }
        return told;
    }

    private java.util.Set<MessageQueue> queuesOf(String topic) throws Exception {
        return admin().examineTopicStats(topic).getOffsetTable().keySet();
    }

    /** How far a group is in each queue of a topic. */
    private Object progress(JSONObject args) throws Exception {
        var table = admin().examineConsumeStats(args.getString("group"), args.getString("topic")).getOffsetTable();
        JSONArray told = new JSONArray();
        for (MessageQueue queue : new TreeSet<>(table.keySet())) {
            JSONObject one = DriverJson.queue(queue);
            one.put("broker", table.get(queue).getBrokerOffset());
            one.put("consumer", table.get(queue).getConsumerOffset());
            told.add(one);
        }
        return told;
    }

    private Object resetOffset(JSONObject args) throws Exception {
        Map<MessageQueue, Long> offsets = admin().resetOffsetByTimestamp(args.getString("topic"), args.getString("group"),
            args.getLongValue("timestamp"), args.getBooleanValue("force"));
        JSONArray told = new JSONArray();
        for (MessageQueue queue : new TreeSet<>(offsets.keySet())) {
            JSONObject one = DriverJson.queue(queue);
            one.put("offset", offsets.get(queue));
            told.add(one);
        }
        return told;
    }

    private Object members(JSONObject args) throws Exception {
        TreeSet<String> ids = new TreeSet<>();
        admin().examineConsumerConnectionInfo(args.getString("group")).getConnectionSet()
            .forEach(connection -> ids.add(connection.getClientId()));
        return ids;
    }
}
