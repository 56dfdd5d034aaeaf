import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/**
 * Apache's Java client as a program that does what it is told: commands come in as JSON lines, answers and events go
 * out as JSON lines. The same sources are compiled against the 5.3 and the 4.9 jars, so nothing here names a class
 * that moved between them. Usage: ClientDriver NAMESRV
 */
public class ClientDriver {
    interface Command {
        Object run(JSONObject args) throws Exception;
    }

    /**
     * How often consumers tell the broker of themselves. A consumer whose share has changed may leave out the heartbeat
     * that says so when another one is under way, and its pulls are refused until the next.
     */
    static final int HEARTBEAT_MILLIS = 1000;

    private static final int CALL_MILLIS = 15_000;

    private static final AtomicInteger INSTANCES = new AtomicInteger();
    private static PrintStream console;

    public static void main(String[] args) throws Exception {
        serve(args[0], new HashMap<>());
    }

    /** Does what it is told until its input ends: the commands given, and those that every driver has. */
    static void serve(String namesrv, Map<String, Command> commands) throws Exception {
        // What the libraries print has no place among the lines of the protocol.
        console = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        System.setProperty("rocketmq.namesrv.addr", namesrv);
        new DriverProducers().addTo(commands);
        new DriverPush().addTo(commands);
        new DriverPulls().addTo(commands);
        new DriverQueries().addTo(commands);
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JSONObject request = JSON.parseObject(line);
            pool.execute(() -> answer(commands, request));
        }
        // An orderly shutdown of the clients waits for their threads; whoever wants one has asked for it.
        Runtime.getRuntime().halt(0);
    }

    private static void answer(Map<String, Command> commands, JSONObject request) {
        JSONObject answer = new JSONObject(true);
        answer.put("id", request.get("id"));
        try {
            Command command = commands.get(request.getString("do"));
            if (command == null) {
                throw new IllegalArgumentException("no such command");
            }
            answer.put("ok", command.run(request));
        } catch (Throwable failure) {
            failure.printStackTrace();
            answer.put("error", failure.toString());
            answer.put("code", codeOf(failure));
        }
        print(answer);
    }

    private static int codeOf(Throwable failure) {
        if (failure instanceof MQBrokerException) {
            return ((MQBrokerException) failure).getResponseCode();
        }
        return failure instanceof MQClientException ? ((MQClientException) failure).getResponseCode() : -1;
    }

    static void print(JSONObject line) {
        console.println(line.toJSONString());
    }

    /** Every client has its own connections and its own client id, and patience with a busy machine. */
    static void prepare(ClientConfig client) {
        client.setInstanceName(newInstance());
        client.setMqClientApiTimeout(CALL_MILLIS);
    }

    private static String newInstance() {
        return "driver-" + ProcessHandle.current().pid() + "-" + INSTANCES.incrementAndGet();
    }
}
