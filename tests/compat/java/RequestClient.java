import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Asks on one topic and answers on another, until it has done both once.
 * Arguments: name server, topic to ask on, topic to answer on, group. Prints the reply that it got.
 */
public class RequestClient {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args[3] + "-producer");
        producer.setNamesrvAddr(args[0]);
        producer.start();

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[3]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        CountDownLatch both = new CountDownLatch(2);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] body = ("java says " + text(message)).getBytes(StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, body), 10_000);
                } catch (Exception error) {
                    error.printStackTrace();
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            both.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();

        Message question = new Message(args[1], "hello".getBytes(StandardCharsets.UTF_8));
        // With a callback: the form that waits gives up as soon as its message is sent.
        producer.request(question, new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                System.out.println(new String(reply.getBody(), StandardCharsets.UTF_8));
                both.countDown();
            }

            @Override
            public void onException(Throwable error) {
                error.printStackTrace();
            }
        }, 60_000);
        if (!both.await(60, TimeUnit.SECONDS)) {
            System.err.println("no reply came, or no request");
            System.exit(1);
        }
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
