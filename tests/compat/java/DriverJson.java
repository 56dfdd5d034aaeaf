import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Base64;
import java.util.Collection;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The client's values as JSON and back; bodies are Base64. */
final class DriverJson {
    private DriverJson() {
    }

    static Message message(String topic, JSONObject from) {
        Message message = new Message(topic, Base64.getDecoder().decode(from.getString("body")));
        if (from.containsKey("tags")) {
            message.setTags(from.getString("tags"));
        }
        if (from.containsKey("keys")) {
            message.setKeys(from.getString("keys"));
        }
        if (from.containsKey("delayLevel")) {
            message.setDelayTimeLevel(from.getIntValue("delayLevel"));
        }
        message.setFlag(from.getIntValue("flag"));
        JSONObject properties = from.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((name, value) -> message.putUserProperty(name, (String) value));
        }
        return message;
    }

    static JSONObject sent(SendResult result) {
        JSONObject json = new JSONObject(true);
        json.put("status", result.getSendStatus().name());
        json.put("msgId", result.getMsgId());
        json.put("offsetMsgId", result.getOffsetMsgId());
        json.put("brokerName", result.getMessageQueue().getBrokerName());
        json.put("queueId", result.getMessageQueue().getQueueId());
        json.put("queueOffset", result.getQueueOffset());
        return json;
    }

    static JSONArray received(Collection<MessageExt> messages) {
        JSONArray array = new JSONArray();
        messages.forEach(message -> array.add(received(message)));
        return array;
    }

    static JSONObject received(MessageExt message) {
        JSONObject json = new JSONObject(true);
        json.put("topic", message.getTopic());
        json.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        json.put("flag", message.getFlag());
        json.put("msgId", message.getMsgId());
        json.put("offsetMsgId", placeOf(message));
        json.put("brokerName", message.getBrokerName());
        json.put("queueId", message.getQueueId());
        json.put("queueOffset", message.getQueueOffset());
        json.put("reconsumeTimes", message.getReconsumeTimes());
        json.put("bornTimestamp", message.getBornTimestamp());
        json.put("storeTimestamp", message.getStoreTimestamp());
        json.put("properties", new JSONObject(new java.util.TreeMap<>(message.getProperties())));
        json.put("at", System.currentTimeMillis());
        return json;
    }

    private static String placeOf(MessageExt message) {
        return message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId();
    }

    static MessageQueue queue(String topic, JSONObject args) {
        return new MessageQueue(topic, args.getString("brokerName"), args.getIntValue("queueId"));
    }

    static JSONObject queue(MessageQueue queue) {
        JSONObject json = new JSONObject(true);
        json.put("brokerName", queue.getBrokerName());
        json.put("queueId", queue.getQueueId());
        return json;
    }
}
