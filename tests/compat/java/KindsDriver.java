import java.util.HashMap;
import java.util.Map;

/**
 * The driver with what only clients from 5.0 on can do, and what belongs to it: transactions, timed messages, requests
 * and replies, consumers that pop. Usage: KindsDriver NAMESRV
 */
public class KindsDriver {
    public static void main(String[] args) throws Exception {
        Map<String, ClientDriver.Command> commands = new HashMap<>();
        new KindsProducers().addTo(commands);
        new KindsConsumers().addTo(commands);
        ClientDriver.serve(args[0], commands);
    }
}
