import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs mqadmin commands in one JVM. Reads one command a line, its arguments separated by tabs; prints what the
 * command printed on both of its streams, then a line that marks the end. Two commands never end by themselves: what
 * begins with "until" and a text is stopped when it has printed that text, and of the monitor one round is run.
 */
public class AdminShell {
    private static final String END_OF_COMMAND = "--- end of command ---";
    private static final long POLL_MILLIS = 20;
    private static final long PATIENCE_MILLIS = 30_000;

    public static void main(String[] args) throws Exception {
        Impatience.begin();
        PrintStream console = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(capture);
            System.setErr(capture);
            String text = run(line.split("\t"), printed);
            console.print(text);
            if (!text.isEmpty() && !text.endsWith("\n")) {
                console.println();
            }
            console.println(END_OF_COMMAND);
            console.flush();
        }
    }

    private static String run(String[] command, ByteArrayOutputStream printed) throws Exception {
        Commands.renew();
        switch (command[0]) {
            case "until":
                return runUntil(command[1], Arrays.copyOfRange(command, 2, command.length), printed);
            case "startMonitoring":
                MonitorRound.run(command[command.length - 1]);
                break;
            default:
                MQAdminStartup.main0(command, null);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    private static String runUntil(String end, String[] command, ByteArrayOutputStream printed) throws Exception {
        Thread thread = new Thread(() -> MQAdminStartup.main0(command, null), "endless command");
        thread.start();
        String text = "";
        for (long waited = 0; !text.contains(end) && waited < PATIENCE_MILLIS; waited += POLL_MILLIS) {
            TimeUnit.MILLISECONDS.sleep(POLL_MILLIS);
            text = printed.toString(StandardCharsets.UTF_8);
        }
        thread.interrupt();
        thread.join(PATIENCE_MILLIS);
        return text;
    }

    private static final class Commands extends MQAdminStartup {
        /** Some commands keep the client that they made, and cannot be run a second time. */
        static void renew() {
            SUB_COMMANDS.clear();
        }
    }
}
