import java.lang.reflect.Field;
import java.util.HashSet;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.tools.monitor.DefaultMonitorListener;
import org.apache.rocketmq.tools.monitor.MonitorConfig;
import org.apache.rocketmq.tools.monitor.MonitorService;
import org.apache.rocketmq.tools.monitor.UndoneMsgs;

/** One round of what mqadmin's startMonitoring does every minute, printed instead of logged. */
final class MonitorRound extends DefaultMonitorListener {
    private final Set<String> reported = new HashSet<>();

    private MonitorRound() {
    }

    static void run(String namesrv) throws Exception {
        MonitorConfig config = new MonitorConfig();
        config.setNamesrvAddr(namesrv);
        MonitorService service = new MonitorService(config, new MonitorRound(), null);
        service.start();
        rounds(service).shutdownNow();
        try {
            service.doMonitorWork();
        } finally {
            service.shutdown();
        }
    }

    /** What would begin a round every minute, also after the shutdown. */
    private static ExecutorService rounds(MonitorService service) throws ReflectiveOperationException {
        Field field = MonitorService.class.getDeclaredField("scheduledExecutorService");
        field.setAccessible(true);
        return (ExecutorService) field.get(service);
    }

    @Override
    public void beginRound() {
        System.out.println("round begins");
    }

    @Override
    public void reportUndoneMsgs(UndoneMsgs undone) {
        System.out.printf("%s has %d messages of %s before it, %d of them in one queue%n", undone.getConsumerGroup(),
            undone.getUndoneMsgsTotal(), undone.getTopic(), undone.getUndoneMsgsSingleMQ());
    }

    @Override
    public void reportConsumerRunningInfo(TreeMap<String, ConsumerRunningInfo> clients) {
        // Once, because the monitor's own group may be known by now or not.
        String line = String.format("%d running, subscriptions agree: %s", clients.size(),
            ConsumerRunningInfo.analyzeSubscription(clients));
        if (reported.add(line)) {
            System.out.println(line);
        }
    }

    @Override
    public void endRound() {
        System.out.println("round ends");
    }
}
