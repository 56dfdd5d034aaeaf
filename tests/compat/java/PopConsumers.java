import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends COUNT messages to TOPIC, which two push consumers of GROUP read that leave the balancing to the broker. Every
 * tenth message is refused when it comes for the first time. Prints a line for each delivery: the consumer, the body,
 * how often it was tried before, and whether it came with a handle. Ends when all are done and for a while nothing
 * else has come. Usage: PopConsumers NAMESRV TOPIC GROUP COUNT
 */
public class PopConsumers {
    private static final int PATIENCE_SECONDS = 90;
    private static final int QUIET_SECONDS = 5;

    public static void main(String[] args) throws Exception {
        String namesrv = args[0];
        String topic = args[1];
        String group = args[2];
        int count = Integer.parseInt(args[3]);
        CountDownLatch missing = new CountDownLatch(count);
        Set<String> done = ConcurrentHashMap.newKeySet();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (String name : new String[] {"first", "second"}) {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
            consumer.setNamesrvAddr(namesrv);
            consumer.setInstanceName(name);
            consumer.setClientRebalance(false);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                ConsumeConcurrentlyStatus status = ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                for (MessageExt message : messages) {
                    String body = new String(message.getBody(), StandardCharsets.UTF_8);
                    String handle = message.getProperty("POP_CK") == null ? "pulled" : "popped";
                    System.out.printf("%s %s %d %s%n", name, body, message.getReconsumeTimes(), handle);
                    if (Integer.parseInt(body) % 10 == 0 && message.getReconsumeTimes() == 0) {
                        status = ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    } else if (done.add(body)) {
                        missing.countDown();
                    }
                }
                return status;
            });
            consumer.start();
            consumers.add(consumer);
        }
        DefaultMQProducer producer = new DefaultMQProducer("pop-producer");
        producer.setNamesrvAddr(namesrv);
        producer.start();
        for (int i = 0; i < count; i++) {
            producer.send(new Message(topic, String.valueOf(i).getBytes(StandardCharsets.UTF_8)), 10_000);
        }
        if (!missing.await(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
            System.out.println("missing " + missing.getCount());
        }
        Thread.sleep(TimeUnit.SECONDS.toMillis(QUIET_SECONDS));
        System.out.flush();
        // An orderly shutdown of the client waits for its threads; the test is about the messages.
        Runtime.getRuntime().halt(0);
    }
}
