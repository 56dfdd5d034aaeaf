import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * How long a message takes from a producer's send to a consumer's listener, one message at a time, through each of
 * several clusters in turn. Prints "CLUSTER P50 P99", in microseconds, for every round.
 * Usage: LatencyProbe TOPIC WARM-UP-MESSAGES MESSAGES ROUNDS NAMESRV...
 */
public class LatencyProbe {
    private static final int PATIENCE_SECONDS = 30;
    private static final int BODY_BYTES = 128;

    private final DefaultMQProducer producer;
    private final LinkedBlockingQueue<Long> arrivals = new LinkedBlockingQueue<>();
    private final String topic;

    public static void main(String[] args) throws Exception {
        int warmUps = Integer.parseInt(args[1]);
        int messages = Integer.parseInt(args[2]);
        int rounds = Integer.parseInt(args[3]);
        String[] namesrvs = Arrays.copyOfRange(args, 4, args.length);
        LatencyProbe[] probes = new LatencyProbe[namesrvs.length];
        for (int i = 0; i < probes.length; i++) {
            probes[i] = new LatencyProbe(namesrvs[i], args[0], "probe-" + i);
        }
        for (LatencyProbe probe : probes) {
            probe.measure(warmUps);
        }
        for (int round = 0; round < rounds; round++) {
            for (int turn = 0; turn < probes.length; turn++) {
                int i = (turn + round) % probes.length;
                long[] micros = probes[i].measure(messages);
                System.out.printf("%d %d %d%n", i, micros[messages / 2], micros[messages * 99 / 100]);
                System.out.flush();
            }
        }
        Runtime.getRuntime().halt(0);
    }

    LatencyProbe(String namesrv, String topic, String instance) throws Exception {
        this.topic = topic;
        CountDownLatch ready = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("latency-consumer");
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(instance);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            arrivals.add(System.nanoTime());
            ready.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        producer = new DefaultMQProducer("latency-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(instance);
        producer.start();
        consumer.start();
        producer.send(message());
        if (!ready.await(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("nothing came back from " + namesrv);
        }
        arrivals.clear();
    }

    private Message message() {
        return new Message(topic, "latency", "x".repeat(BODY_BYTES).getBytes(StandardCharsets.UTF_8));
    }

    /** The sorted latencies, in microseconds. */
    private long[] measure(int count) throws Exception {
        long[] micros = new long[count];
        for (int i = 0; i < count; i++) {
            Message message = message();
            long begun = System.nanoTime();
            producer.send(message);
            Long arrived = arrivals.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
            if (arrived == null) {
                throw new IllegalStateException("a message did not come back");
            }
            micros[i] = (arrived - begun) / 1000;
        }
        Arrays.sort(micros);
        return micros;
    }
}
