import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends in every form that the client has. */
final class DriverProducers {
    private static final int ANSWER_SECONDS = 20;
    private static final MessageQueueSelector BY_NUMBER = (queues, message, arg) -> queues.get((Integer) arg % queues.size());

    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, Pour> pours = new ConcurrentHashMap<>();

    void addTo(Map<String, ClientDriver.Command> commands) {
        commands.put("producer", this::start);
        commands.put("stopProducer", this::stop);
        commands.put("send", this::send);
        commands.put("pour", this::pour);
        commands.put("endPour", args -> pours.remove(args.getString("name")).end());
    }

    private Object start(JSONObject args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args.getString("group"));
        ClientDriver.prepare(producer);
        producer.setSendMsgTimeout(args.containsKey("timeoutMillis") ? args.getIntValue("timeoutMillis") : 10_000);
        if (args.containsKey("retries")) {
            producer.setRetryTimesWhenSendFailed(args.getIntValue("retries"));
        }
        if (args.containsKey("compressOver")) {
            producer.setCompressMsgBodyOverHowmuch(args.getIntValue("compressOver"));
        }
        if (args.containsKey("maxBytes")) {
            producer.setMaxMessageSize(args.getIntValue("maxBytes"));
        }
        if (args.containsKey("queues")) {
            producer.setDefaultTopicQueueNums(args.getIntValue("queues"));
        }
        if (args.containsKey("heartbeatMillis")) {
            producer.setHeartbeatBrokerInterval(args.getIntValue("heartbeatMillis"));
        }
        if (args.getBooleanValue("avoidFaults")) {
            producer.setSendLatencyFaultEnable(true);
        }
        producer.start();
        producers.put(args.getString("name"), producer);
        return producer.buildMQClientId();
    }

    private Object stop(JSONObject args) {
        producers.remove(args.getString("name")).shutdown();
        return true;
    }

    private Object send(JSONObject args) throws Exception {
        DefaultMQProducer producer = producers.get(args.getString("producer"));
        String topic = args.getString("topic");
        List<Message> messages = new ArrayList<>();
        for (Object message : args.getJSONArray("messages")) {
            messages.add(DriverJson.message(topic, (JSONObject) message));
        }
        JSONArray results = new JSONArray();
        if (args.getString("form").startsWith("batch")) {
            results.add(DriverJson.sent(sendBatch(producer, messages, args)));
            return results;
        }
        List<CompletableFuture<SendResult>> pending = new ArrayList<>();
        for (Message message : messages) {
            pending.add(sendOne(producer, message, args));
        }
        for (CompletableFuture<SendResult> one : pending) {
            SendResult result = one.get(ANSWER_SECONDS, TimeUnit.SECONDS);
            results.add(result == null ? null : DriverJson.sent(result));
        }
        return results;
    }

    private SendResult sendBatch(DefaultMQProducer producer, List<Message> batch, JSONObject args) throws Exception {
        MessageQueue queue = DriverJson.queue(args.getString("topic"), args);
        Answer answer = new Answer();
        switch (args.getString("form")) {
            case "batch":
                return producer.send(batch);
            case "batchQueue":
                return producer.send(batch, queue);
            case "batchAsync":
                producer.send(batch, answer);
                return answer.get(ANSWER_SECONDS, TimeUnit.SECONDS);
            default:
                throw new IllegalArgumentException(args.getString("form"));
        }
    }

    /** The result, or one that is null at once when the form has none. */
    private CompletableFuture<SendResult> sendOne(DefaultMQProducer producer, Message message, JSONObject args) throws Exception {
        MessageQueue queue = DriverJson.queue(args.getString("topic"), args);
        Integer arg = args.getInteger("arg");
        Answer answer = new Answer();
        switch (args.getString("form")) {
            case "sync":
                return CompletableFuture.completedFuture(producer.send(message));
            case "async":
                producer.send(message, answer);
                return answer;
            case "oneway":
                producer.sendOneway(message);
                return CompletableFuture.completedFuture(null);
            case "queue":
                return CompletableFuture.completedFuture(producer.send(message, queue));
            case "queueAsync":
                producer.send(message, queue, answer);
                return answer;
            case "queueOneway":
                producer.sendOneway(message, queue);
                return CompletableFuture.completedFuture(null);
            case "selector":
                return CompletableFuture.completedFuture(producer.send(message, BY_NUMBER, arg));
            case "selectorAsync":
                producer.send(message, BY_NUMBER, arg, answer);
                return answer;
            case "selectorOneway":
                producer.sendOneway(message, BY_NUMBER, arg);
                return CompletableFuture.completedFuture(null);
            default:
                throw new IllegalArgumentException(args.getString("form"));
        }
    }

    private Object pour(JSONObject args) {
        DefaultMQProducer producer = producers.get(args.getString("producer"));
        Pour pour = new Pour(producer, args.getString("topic"), args.getIntValue("pauseMillis"));
        pours.put(args.getString("name"), pour);
        for (int i = 0; i < args.getIntValue("threads"); i++) {
            Thread thread = new Thread(pour, "pour-" + i);
            pour.threads.add(thread);
            thread.start();
        }
        return true;
    }

    private static final class Answer extends CompletableFuture<SendResult> implements SendCallback {
        @Override
        public void onSuccess(SendResult result) {
            complete(result);
        }

        @Override
        public void onException(Throwable failure) {
            completeExceptionally(failure);
        }
    }

    /** Sends without end and keeps what was acknowledged, with when it was. */
    private static final class Pour implements Runnable {
        private final DefaultMQProducer producer;
        private final String topic;
        private final int pauseMillis;
        private final List<Thread> threads = new ArrayList<>();
        private final AtomicInteger next = new AtomicInteger();
        private final AtomicInteger failed = new AtomicInteger();
        private final JSONArray acknowledged = new JSONArray();
        private volatile boolean going = true;

        Pour(DefaultMQProducer producer, String topic, int pauseMillis) {
            this.producer = producer;
            this.topic = topic;
            this.pauseMillis = pauseMillis;
        }

        @Override
        public void run() {
            while (going) {
                String body = "poured-" + next.getAndIncrement();
                try {
                    SendResult result = producer.send(new Message(topic, "pour", body.getBytes(StandardCharsets.UTF_8)));
                    if (result.getSendStatus() == SendStatus.SEND_OK) {
                        acknowledge(body, result);
                    }
                    TimeUnit.MILLISECONDS.sleep(pauseMillis);
                } catch (Exception failure) {
                    failed.incrementAndGet();
                }
            }
        }

        private void acknowledge(String body, SendResult result) {
            JSONObject one = new JSONObject(true);
            one.put("body", body);
            one.put("at", System.currentTimeMillis());
            one.put("brokerName", result.getMessageQueue().getBrokerName());
            synchronized (acknowledged) {
                acknowledged.add(one);
            }
        }

        Object end() throws InterruptedException {
            going = false;
            for (Thread thread : threads) {
                thread.join();
            }
            JSONObject told = new JSONObject(true);
            told.put("acknowledged", acknowledged);
            told.put("failed", failed.get());
            return told;
        }
    }
}
