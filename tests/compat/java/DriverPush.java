import com.alibaba.fastjson.JSONObject;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Push consumers whose listeners print what they are given, and then behave as they were told: succeed, be slow, hang,
 * fail or raise while a message has been tried fewer than so many times.
 */
final class DriverPush {
    private final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();

    void addTo(Map<String, ClientDriver.Command> commands) {
        commands.put("push", this::start);
        commands.put("stop", this::stop);
        commands.put("persist", this::persist);
    }

    private Object start(JSONObject args) throws Exception {
        String name = args.getString("name");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args.getString("group"));
        ClientDriver.prepare(consumer);
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(ClientDriver.HEARTBEAT_MILLIS);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setConsumeFromWhere(args.getBooleanValue("fromLast")
            ? ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (args.getBooleanValue("broadcast")) {
            var model = consumer.getMessageModel();
            consumer.setMessageModel(Enum.valueOf(model.getDeclaringClass(), "BROADCASTING"));
        }
        if (args.containsKey("batch")) {
            consumer.setConsumeMessageBatchMaxSize(args.getIntValue("batch"));
        }
        if (args.containsKey("threads")) {
            consumer.setConsumeThreadMin(args.getIntValue("threads"));
            consumer.setConsumeThreadMax(args.getIntValue("threads"));
        }
        if (args.containsKey("maxTries")) {
            consumer.setMaxReconsumeTimes(args.getIntValue("maxTries"));
        }
        if (args.containsKey("heldPerQueue")) {
            consumer.setPullThresholdForQueue(args.getIntValue("heldPerQueue"));
        }
        for (Object topic : args.getJSONArray("topics")) {
            if (args.containsKey("sql")) {
                consumer.subscribe((String) topic, MessageSelector.bySql(args.getString("sql")));
            } else {
                consumer.subscribe((String) topic, args.getString("tags"));
            }
        }
        Behaviour behaviour = new Behaviour(name, args);
        if (args.getBooleanValue("ordered")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                context.setSuspendCurrentQueueTimeMillis(args.getIntValue("suspendMillis"));
                return behaviour.take(messages) ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(args.getIntValue("retryLevel"));
                return behaviour.take(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumers.put(name, consumer);
        consumer.start();
        return consumer.buildMQClientId();
    }

    private Object stop(JSONObject args) {
        consumers.remove(args.getString("name")).shutdown();
        return true;
    }

    /** A consumer tells the broker how far it is only after ten seconds, unless it is asked to. */
    private Object persist(JSONObject args) {
        consumers.values().forEach(consumer -> consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset());
        return true;
    }

    static final class Behaviour {
        private final String consumer;
        private final int failures;
        private final boolean raising;
        private final int sleepMillis;
        private final String stuckOn;

        Behaviour(String consumer, JSONObject args) {
            this.consumer = consumer;
            this.failures = args.getIntValue("failures");
            this.raising = args.getBooleanValue("raising");
            this.sleepMillis = args.getIntValue("sleepMillis");
            this.stuckOn = args.getString("stuckOn");
        }

        boolean take(List<MessageExt> messages) {
            JSONObject event = new JSONObject(true);
            event.put("consumer", consumer);
            event.put("messages", DriverJson.received(messages));
            ClientDriver.print(event);
            try {
                TimeUnit.MILLISECONDS.sleep(sleepMillis);
                while (messages.stream().anyMatch(message -> new String(message.getBody()).equals(stuckOn))) {
                    TimeUnit.HOURS.sleep(1);
                }
            } catch (InterruptedException end) {
                Thread.currentThread().interrupt();
                return false;
            }
            if (messages.stream().noneMatch(message -> message.getReconsumeTimes() < failures)) {
                return true;
            }
            if (raising) {
                throw new IllegalStateException("raised on purpose");
            }
            return false;
        }
    }
}
