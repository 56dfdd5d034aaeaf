import com.alibaba.fastjson.JSON;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** A message that Apache's client read as one line of JSON: every field, and every property that was stored. */
final class StoredJson {
    private StoredJson() {
    }

    static String of(MessageExt message) {
        Map<String, String> properties = new TreeMap<>();
        // A message without properties, looked at in its place, has not even an empty map.
        if (message.getProperties() != null) {
            properties.putAll(message.getProperties());
        }
        // The client puts these there while it reads.
        properties.remove(MessageConst.PROPERTY_MIN_OFFSET);
        properties.remove(MessageConst.PROPERTY_MAX_OFFSET);

        Map<String, Object> fields = new TreeMap<>();
        fields.put("topic", message.getTopic());
        // A body of no bytes is none to the client.
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        fields.put("body", Base64.getEncoder().encodeToString(body));
        fields.put("properties", properties);
        fields.put("broker_name", message.getBrokerName() == null ? "" : message.getBrokerName());
        fields.put("queue_id", message.getQueueId());
        fields.put("queue_offset", message.getQueueOffset());
        fields.put("commit_log_offset", message.getCommitLogOffset());
        fields.put("store_size", message.getStoreSize());
        fields.put("body_crc", message.getBodyCRC());
        fields.put("flag", message.getFlag());
        fields.put("sys_flag", message.getSysFlag());
        fields.put("born_timestamp_ms", message.getBornTimestamp());
        fields.put("born_host", host(message.getBornHost()));
        fields.put("store_timestamp_ms", message.getStoreTimestamp());
        fields.put("store_host", host(message.getStoreHost()));
        fields.put("reconsume_times", message.getReconsumeTimes());
        fields.put("prepared_transaction_offset", message.getPreparedTransactionOffset());
        fields.put("offset_msg_id", MessageDecoder.createMessageId(
            (InetSocketAddress) message.getStoreHost(), message.getCommitLogOffset()));
        return JSON.toJSONString(fields);
    }

    private static List<Object> host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return List.of(host.getAddress().getHostAddress(), host.getPort());
    }
}
