import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends a message and a transaction, and consumes both, with traces on; prints the two ids.
 * Arguments: name server, topic, producer group, consumer group.
 */
public class TracedClient {
    public static void main(String[] args) throws Exception {
        String namesrv = args[0];
        String topic = args[1];
        CountDownLatch consumed = new CountDownLatch(2);

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[3], true, null);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            consumed.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();

        DefaultMQProducer producer = new DefaultMQProducer(args[2], true, null);
        producer.setNamesrvAddr(namesrv);
        producer.start();
        Message plain = new Message(topic, "paid", "order-7", "plain".getBytes(StandardCharsets.UTF_8));
        System.out.println(producer.send(plain).getMsgId());

        TransactionMQProducer transactions = new TransactionMQProducer(args[2] + "-tx", null, true, null);
        transactions.setNamesrvAddr(namesrv);
        transactions.setTransactionListener(new Committing());
        transactions.start();
        Message half = new Message(topic, "half".getBytes(StandardCharsets.UTF_8));
        System.out.println(transactions.sendMessageInTransaction(half, null).getMsgId());

        if (!consumed.await(60, TimeUnit.SECONDS)) {
            System.err.println("not everything was consumed");
            System.exit(1);
        }
        transactions.shutdown();
        producer.shutdown();
        consumer.shutdown();
        System.exit(0);
    }

    private static final class Committing implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }
}
