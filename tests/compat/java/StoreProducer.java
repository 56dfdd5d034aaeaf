import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Apache's producer; prints "ack QUEUE OFFSET OFFSET-ID" when the broker has acknowledged a message. */
final class StoreProducer {
    private static final int BATCH = 10;
    private static final int SINGLES = 40;
    private static final int LARGE_BODY = 30_000;
    private static final int SEND_MILLIS = 5000;
    private static final int DELAY_LEVEL_OF_HOURS = 18;

    private StoreProducer() {
    }

    static void sendOfEveryKind(String namesrv, String topic, PrintStream console) throws Exception {
        DefaultMQProducer producer = producer(namesrv);
        try {
            for (int i = 0; i < SINGLES; i++) {
                acknowledged(producer.send(message(topic, i)), console);
            }
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < BATCH; i++) {
                batch.add(new Message(topic, "TagBatch", "java-batch-" + i, text("batched " + i)));
            }
            acknowledged(producer.send(batch), console);
            for (CompressionType compression : CompressionType.values()) {
                producer.setCompressType(compression);
                byte[] body = text(compression + " compresses well. ".repeat(LARGE_BODY / 20));
                acknowledged(producer.send(new Message(topic, "TagCompressed", "java-" + compression, body)), console);
            }
            Message late = new Message(topic, "TagLate", "java-late", text("in two hours"));
            late.setDelayTimeLevel(DELAY_LEVEL_OF_HOURS);
            acknowledged(producer.send(late), console);
        } finally {
            StoreShell.closeBeside(producer::shutdown);
        }
    }

    private static Message message(String topic, int number) {
        Message message = new Message(topic, "Täg" + number % 3, "java-" + number + " java-all", text("größe 大 " + number));
        message.setFlag(number);
        message.putUserProperty("číslo", Integer.toString(number));
        return message;
    }

    static void pour(String namesrv, String topic, int threads, PrintStream console) throws Exception {
        DefaultMQProducer producer = producer(namesrv);
        producer.setRetryTimesWhenSendFailed(0);
        AtomicInteger number = new AtomicInteger();
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        List<Thread> senders = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            MessageQueue queue = queues.get(i % queues.size());
            senders.add(new Thread(() -> pourInto(producer, queue, number, console), "sender-" + i));
        }
        senders.forEach(Thread::start);
        for (Thread sender : senders) {
            sender.join();
        }
        StoreShell.closeBeside(producer::shutdown);
    }

    private static void pourInto(DefaultMQProducer producer, MessageQueue queue, AtomicInteger number, PrintStream console) {
        try {
            while (true) {
                int next = number.getAndIncrement();
                byte[] body = text("poured " + next + " " + "x".repeat(next % 1000));
                acknowledged(producer.send(new Message(queue.getTopic(), "TagPour", "pour-" + next, body), queue), console);
            }
        } catch (Exception gone) {
            // The broker was killed: what was not acknowledged until now never will be.
        }
    }

    private static void acknowledged(SendResult result, PrintStream console) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("not stored: " + result);
        }
        String[] places = result.getOffsetMsgId().split(",");
        for (int i = 0; i < places.length; i++) {
            long offset = result.getQueueOffset() + i;
            console.println("ack " + result.getMessageQueue().getQueueId() + " " + offset + " " + places[i]);
        }
    }

    private static DefaultMQProducer producer(String namesrv) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("store-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(StoreShell.newInstance());
        producer.setSendMsgTimeout(SEND_MILLIS);
        producer.start();
        return producer;
    }

    private static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
