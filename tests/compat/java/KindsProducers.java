import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Producers of transactions, timed messages and requests. What becomes of a transaction stands in the properties of its
 * message: "local" is the state after the local work, which waits to be let go if the message is "held", and "checks" are
 * the answers to the broker's questions one after the other, the last of them for ever.
 */
final class KindsProducers {
    private static final int ANSWER_SECONDS = 30;

    private final Map<String, TransactionMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, CompletableFuture<Void>> held = new ConcurrentHashMap<>();

    void addTo(Map<String, ClientDriver.Command> commands) {
        commands.put("kindsProducer", this::start);
        commands.put("stopKindsProducer", this::stop);
        commands.put("transact", this::transact);
        commands.put("letGo", args -> gate(args.getString("text")).complete(null));
        commands.put("sendTimed", this::sendTimed);
        commands.put("recall", args -> producer(args).recallMessage(args.getString("topic"), args.getString("handle")));
        commands.put("request", this::request);
    }

    private TransactionMQProducer producer(JSONObject args) {
        return producers.get(args.getString("producer"));
    }

    private CompletableFuture<Void> gate(String text) {
        return held.computeIfAbsent(text, name -> new CompletableFuture<>());
    }

    private Object start(JSONObject args) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(args.getString("group"));
        ClientDriver.prepare(producer);
        producer.setSendMsgTimeout(10_000);
        // A broker asks only producers that it has heard of.
        producer.setHeartbeatBrokerInterval(1000);
        producer.setPollNameServerInterval(1000);
        producer.setTransactionListener(new Decisions(args.getString("name")));
        producer.start();
        producers.put(args.getString("name"), producer);
        return producer.buildMQClientId();
    }

    private Object stop(JSONObject args) {
        producers.remove(args.getString("producer")).shutdown();
        return true;
    }

    private List<Message> messages(JSONObject args) {
        List<Message> messages = new ArrayList<>();
        for (Object message : args.getJSONArray("messages")) {
            messages.add(DriverJson.message(args.getString("topic"), (JSONObject) message));
        }
        return messages;
    }

    private Object transact(JSONObject args) throws Exception {
        JSONArray told = new JSONArray();
        for (Message message : messages(args)) {
            TransactionSendResult result = producer(args).sendMessageInTransaction(message, null);
            JSONObject one = DriverJson.sent(result);
            one.put("local", result.getLocalTransactionState().name());
            told.add(one);
        }
        return told;
    }

    private Object sendTimed(JSONObject args) throws Exception {
        JSONArray told = new JSONArray();
        for (Message message : messages(args)) {
            switch (args.getString("form")) {
                case "delayMs":
                    message.setDelayTimeMs(args.getLongValue("time"));
                    break;
                case "delaySec":
                    message.setDelayTimeSec(args.getLongValue("time"));
                    break;
                case "deliverMs":
                    message.setDeliverTimeMs(args.getLongValue("time"));
                    break;
                default:
                    throw new IllegalArgumentException(args.getString("form"));
            }
            var result = producer(args).send(message);
            JSONObject one = DriverJson.sent(result);
            one.put("recallHandle", result.getRecallHandle());
            told.add(one);
        }
        return told;
    }

    /** With a callback: the form that waits gives up as soon as its message is sent. */
    private Object request(JSONObject args) throws Exception {
        CompletableFuture<Message> reply = new CompletableFuture<>();
        Message question = new Message(args.getString("topic"), Base64.getDecoder().decode(args.getString("body")));
        producer(args).request(question, new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                // The client calls this when the request is sent, and again when the reply is there.
                if (message != null) {
                    reply.complete(message);
                }
            }

            @Override
            public void onException(Throwable failure) {
                reply.completeExceptionally(failure);
            }
        }, args.getLongValue("millis"));
        return new String(reply.get(ANSWER_SECONDS, TimeUnit.SECONDS).getBody(), StandardCharsets.UTF_8);
    }

    /** Prints every local transaction and every question, and decides as the message says. */
    private final class Decisions implements TransactionListener {
        private final String producer;
        private final Map<String, AtomicInteger> asked = new ConcurrentHashMap<>();

        Decisions(String producer) {
            this.producer = producer;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object unused) {
            JSONObject one = new JSONObject(true);
            one.put("body", Base64.getEncoder().encodeToString(message.getBody()));
            one.put("topic", message.getTopic());
            one.put("at", System.currentTimeMillis());
            JSONArray given = new JSONArray();
            given.add(one);
            print(producer + "-local", given);
            if (message.getUserProperty("held") != null) {
                gate(new String(message.getBody(), StandardCharsets.UTF_8)).join();
            }
            return LocalTransactionState.valueOf(message.getUserProperty("local"));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            print(producer + "-checks", DriverJson.received(List.of(message)));
            String[] answers = message.getUserProperty("checks").split(" ");
            String key = new String(message.getBody(), StandardCharsets.UTF_8);
            int times = asked.computeIfAbsent(key, name -> new AtomicInteger()).getAndIncrement();
            return LocalTransactionState.valueOf(answers[Math.min(times, answers.length - 1)]);
        }

        private void print(String what, JSONArray given) {
            JSONObject event = new JSONObject(true);
            event.put("consumer", what);
            event.put("messages", given);
            ClientDriver.print(event);
        }
    }
}
