import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Consumers that pop, and consumers that reply. */
final class KindsConsumers {
    private final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
    private DefaultMQAdminExt admin;

    void addTo(Map<String, ClientDriver.Command> commands) {
        commands.put("popMode", this::popMode);
        commands.put("pop", this::startPopping);
        commands.put("reply", this::startReplying);
        commands.put("stopKindsConsumer", this::stop);
    }

    /** Have the consumers of a group pop a topic. */
    private synchronized Object popMode(JSONObject args) throws Exception {
        if (admin == null) {
            admin = new DefaultMQAdminExt();
            ClientDriver.prepare(admin);
            admin.start();
        }
        admin.setMessageRequestMode(args.getString("broker"), args.getString("topic"), args.getString("group"),
            MessageRequestMode.POP, args.getIntValue("share"), 5000);
        return true;
    }

    private DefaultMQPushConsumer consumer(JSONObject args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args.getString("group"));
        ClientDriver.prepare(consumer);
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(ClientDriver.HEARTBEAT_MILLIS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (args.containsKey("threads")) {
            consumer.setConsumeThreadMin(args.getIntValue("threads"));
            consumer.setConsumeThreadMax(args.getIntValue("threads"));
        }
        consumer.subscribe(args.getString("topic"), "*");
        return consumer;
    }

    private Object startPopping(JSONObject args) throws Exception {
        DefaultMQPushConsumer consumer = consumer(args);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(args.getLongValue("invisibleMillis"));
        if (args.containsKey("batch")) {
            consumer.setPopBatchNums(args.getIntValue("batch"));
        }
        if (args.containsKey("heldPerQueue")) {
            consumer.setPopThresholdForQueue(args.getIntValue("heldPerQueue"));
        }
        DriverPush.Behaviour behaviour = new DriverPush.Behaviour(args.getString("name"), args);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            behaviour.take(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        return started(consumer, args);
    }

    /** Replies to every request after a while; prints it when the reply has been sent. */
    private Object startReplying(JSONObject args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args.getString("group") + "-replies");
        ClientDriver.prepare(producer);
        producer.start();
        DefaultMQPushConsumer consumer = consumer(args);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    TimeUnit.MILLISECONDS.sleep(args.getIntValue("sleepMillis"));
                    String text = "re: " + new String(message.getBody(), StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, text.getBytes(StandardCharsets.UTF_8)), 10_000);
                } catch (Exception failure) {
                    failure.printStackTrace();
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            JSONObject event = new JSONObject(true);
            event.put("consumer", args.getString("name"));
            event.put("messages", DriverJson.received(messages));
            ClientDriver.print(event);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return started(consumer, args);
    }

    private Object started(DefaultMQPushConsumer consumer, JSONObject args) throws Exception {
        consumer.start();
        consumers.put(args.getString("name"), consumer);
        return consumer.buildMQClientId();
    }

    private Object stop(JSONObject args) {
        consumers.remove(args.getString("name")).shutdown();
        return true;
    }
}
