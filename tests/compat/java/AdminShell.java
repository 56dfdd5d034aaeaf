import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs mqadmin commands in one JVM. Reads one command a line, its arguments separated by tabs; prints what the
 * command printed on both of its streams, then a line that marks the end.
 */
public class AdminShell {
    private static final String END_OF_COMMAND = "--- end of command ---";

    public static void main(String[] args) throws Exception {
        Impatience.begin();
        PrintStream console = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(capture);
            System.setErr(capture);
            MQAdminStartup.main0(line.split("\t"), null);
            capture.flush();
            String text = printed.toString(StandardCharsets.UTF_8);
            console.print(text);
            if (!text.isEmpty() && !text.endsWith("\n")) {
                console.println();
            }
            console.println(END_OF_COMMAND);
            console.flush();
        }
    }
}
