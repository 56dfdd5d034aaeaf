import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Apache's client as a reader and writer of whole brokers, many commands in one JVM. Reads one command a line, its
 * arguments separated by tabs; prints messages as JSON and acknowledgements as they come, then a line that marks the
 * end. A command that fails prints a line that begins with "failed:".
 *
 * read NAMESRV GROUP TOPIC...        every message of every queue, by offset
 * key NAMESRV TOPIC KEY...           what a query for each key finds
 * unique NAMESRV TOPIC ID...         what a query for each unique id finds
 * place NAMESRV TOPIC ID...          what is at the place in the log that each offset id names
 * progress NAMESRV GROUP TOPIC       offset of the group in each queue, by queue
 * send NAMESRV TOPIC                 one message of every kind that a producer makes
 * pour NAMESRV TOPIC THREADS         messages without end, until the broker is gone
 */
public class StoreShell {
    private static final String END_OF_COMMAND = "--- end of command ---";
    private static final int PULLED_AT_ONCE = 32;
    private static final int FOUND_AT_ONCE = 64;
    private static final String OWN_GROUP = "store-shell";

    private static final PrintStream CONSOLE =
        new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            try {
                run(words[0], words[1], Arrays.asList(words).subList(2, words.length));
            } catch (Exception failure) {
                failure.printStackTrace();
                CONSOLE.println("failed: " + failure.toString().replace('\n', ' '));
            }
            CONSOLE.println(END_OF_COMMAND);
        }
    }

    private static void run(String command, String namesrv, List<String> args) throws Exception {
        switch (command) {
            case "read":
                read(namesrv, args.get(0), args.subList(1, args.size()));
                break;
            case "progress":
                progress(namesrv, args.get(0), args.get(1));
                break;
            case "key":
            case "unique":
            case "place":
                look(command, namesrv, args.get(0), args.subList(1, args.size()));
                break;
            case "send":
                StoreProducer.sendOfEveryKind(namesrv, args.get(0), CONSOLE);
                break;
            case "pour":
                StoreProducer.pour(namesrv, args.get(0), Integer.parseInt(args.get(1)), CONSOLE);
                break;
            default:
                throw new IllegalArgumentException(command);
        }
    }

    private static void read(String namesrv, String group, List<String> topics) throws Exception {
        DefaultMQPullConsumer consumer = consumer(namesrv, group);
        try {
            for (String topic : topics) {
                for (MessageQueue queue : queuesOf(consumer, topic)) {
                    readQueue(consumer, queue);
                }
            }
        } finally {
            closeBeside(consumer::shutdown);
        }
    }

    private static void readQueue(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        PullResult pulled = consumer.pull(queue, "*", consumer.minOffset(queue), PULLED_AT_ONCE);
        while (pulled.getPullStatus() == PullStatus.FOUND) {
            for (MessageExt message : pulled.getMsgFoundList()) {
                CONSOLE.println(StoredJson.of(message));
            }
            pulled = consumer.pull(queue, "*", pulled.getNextBeginOffset(), PULLED_AT_ONCE);
        }
        if (pulled.getNextBeginOffset() != pulled.getMaxOffset()) {
            throw new IllegalStateException("reading of " + queue + " ended with " + pulled);
        }
    }

    private static void progress(String namesrv, String group, String topic) throws Exception {
        DefaultMQPullConsumer consumer = consumer(namesrv, group);
        try {
            for (MessageQueue queue : queuesOf(consumer, topic)) {
                CONSOLE.println(consumer.fetchConsumeOffset(queue, true));
            }
        } finally {
            closeBeside(consumer::shutdown);
        }
    }

    private static void look(String how, String namesrv, String topic, List<String> names) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(OWN_GROUP);
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName(newInstance());
        admin.start();
        try {
            for (String name : names) {
                for (MessageExt message : found(admin, how, topic, name)) {
                    CONSOLE.println(StoredJson.of(message));
                }
            }
        } finally {
            closeBeside(admin::shutdown);
        }
    }

    private static List<MessageExt> found(DefaultMQAdminExt admin, String how, String topic, String name)
        throws Exception {
        switch (how) {
            case "key":
                return admin.queryMessage(topic, name, FOUND_AT_ONCE, 0, Long.MAX_VALUE).getMessageList();
            case "unique":
                return admin.queryMessageByUniqKey(null, topic, name, FOUND_AT_ONCE, 0, Long.MAX_VALUE)
                    .getMessageList();
            default:
                return List.of(admin.viewMessage(topic, name));
        }
    }

    private static DefaultMQPullConsumer consumer(String namesrv, String group) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(newInstance());
        consumer.setConsumerPullTimeoutMillis(60_000);  // of a machine that is busy with other tests
        consumer.start();
        return consumer;
    }

    private static Set<MessageQueue> queuesOf(DefaultMQPullConsumer consumer, String topic) throws Exception {
        return new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic));
    }

    /** Shutting a client down takes seconds, and nobody has to wait for it. */
    static void closeBeside(Runnable shutdown) {
        Thread closer = new Thread(shutdown, "closer");
        closer.setDaemon(true);
        closer.start();
    }

    /** Clients of one instance share what they know of brokers; brokers here come and go too quickly for that. */
    static String newInstance() {
        return "store-" + System.nanoTime();
    }
}
