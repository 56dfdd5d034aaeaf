import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Allocates queues for each line of a file: `strategy TAB client TAB clients TAB queues`, where lists are
 * separated by blanks and a queue is `broker:id`. Prints the allocated queues in the same form, a line each.
 * The room of a client or a broker is what stands before its first `@`.
 */
public class Strategies {
    public static void main(String[] args) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[0]), StandardCharsets.UTF_8)) {
            String[] parts = line.split("\t");
            List<MessageQueue> queues = new ArrayList<>();
            for (String text : parts[3].split(" ")) {
                int colon = text.lastIndexOf(':');
                queues.add(new MessageQueue("orders", text.substring(0, colon),
                    Integer.parseInt(text.substring(colon + 1))));
            }
            List<MessageQueue> chosen = strategy(parts[0], queues)
                .allocate("billing", parts[1], queues, Arrays.asList(parts[2].split(" ")));
            StringBuilder row = new StringBuilder();
            for (MessageQueue queue : chosen) {
                row.append(row.length() == 0 ? "" : " ").append(queue.getBrokerName()).append(':')
                    .append(queue.getQueueId());
            }
            out.append(row).append('\n');
        }
        System.out.print(out);
        System.exit(0);
    }

    private static AllocateMessageQueueStrategy strategy(String name, List<MessageQueue> queues) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONFIG":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues.subList(0, 1));
                return config;
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new HashSet<>(Arrays.asList("room1", "room2")));
                return rooms;
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            default:
                return new AllocateMachineRoomNearby(strategy(name.substring(name.indexOf('-') + 1), queues),
                    new AllocateMachineRoomNearby.MachineRoomResolver() {
                        @Override
                        public String brokerDeployIn(MessageQueue queue) {
                            return queue.getBrokerName().split("@")[0];
                        }

                        @Override
                        public String consumerDeployIn(String clientId) {
                            return clientId.split("@")[0];
                        }
                    });
        }
    }
}
