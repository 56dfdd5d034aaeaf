import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends COUNT messages to TOPIC and receives them with a new group; prints "sent=S received=R", the second number
 * counting different messages. Usage: Exchange NAMESRV TOPIC COUNT
 */
public class Exchange {
    private static final int PATIENCE_SECONDS = 30;
    private static final int RETRY_MILLIS = 200;
    private static final int ROUTE_REFRESH_MILLIS = 1000;

    public static void main(String[] args) throws Exception {
        String namesrv = args[0];
        String topic = args[1];
        int count = Integer.parseInt(args[2]);

        DefaultMQProducer producer = new DefaultMQProducer("exchange-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        int sent = 0;
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "exchange", ("message-" + i).getBytes(StandardCharsets.UTF_8));
            if (patiently(() -> producer.send(message)).getSendStatus() == SendStatus.SEND_OK) {
                sent++;
            }
        }

        Set<String> received = ConcurrentHashMap.newKeySet();
        CountDownLatch missing = new CountDownLatch(count);
        patiently(() -> consume(namesrv, topic, body -> {
            if (received.add(body)) {
                missing.countDown();
            }
        }));
        missing.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
        System.out.printf("sent=%d received=%d%n", sent, received.size());
        System.out.flush();
        // An orderly shutdown of the client waits for its threads; the test is about the messages.
        Runtime.getRuntime().halt(0);
    }

    private static DefaultMQPushConsumer consume(String namesrv, String topic, Consumer<String> bodies) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("exchange-" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setPollNameServerInterval(ROUTE_REFRESH_MILLIS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "exchange");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                bodies.accept(new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /** Apache's client fails a call when it happens upon a name server that is down; the next call takes the next. */
    private static <T> T patiently(Callable<T> call) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (true) {
            try {
                return call.call();
            } catch (Exception failure) {
                failure.printStackTrace();
                if (System.nanoTime() > deadline) {
                    Runtime.getRuntime().halt(1);
                }
                TimeUnit.MILLISECONDS.sleep(RETRY_MILLIS);
            }
        }
    }
}
