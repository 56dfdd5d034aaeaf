import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * Compiles SQL92 expressions and applies each to messages, as the broker does. The argument names a JSON file
 * with "expressions", an array of texts, and "messages", an array of property maps. Prints a line an
 * expression: "refused", or a letter a message: T and F for true and false, N for null, E for an error.
 */
public final class Sql92 {
    public static void main(String[] args) throws Exception {
        byte[] file = Files.readAllBytes(Paths.get(args[0]));
        JSONObject asked = JSON.parseObject(new String(file, StandardCharsets.UTF_8));
        JSONArray expressions = asked.getJSONArray("expressions");
        JSONArray messages = asked.getJSONArray("messages");
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (int i = 0; i < expressions.size(); i++) {
            out.println(outcomes(expressions.getString(i), messages));
        }
    }

    private static String outcomes(String text, JSONArray messages) {
        Expression expression;
        try {
            expression = SelectorParser.parse(text);
        } catch (Throwable refusal) {
            return "refused";
        }
        StringBuilder letters = new StringBuilder();
        for (int i = 0; i < messages.size(); i++) {
            Map<String, String> properties = new HashMap<>();
            for (Map.Entry<String, Object> property : messages.getJSONObject(i).entrySet()) {
                properties.put(property.getKey(), (String) property.getValue());
            }
            letters.append(outcome(expression, properties));
        }
        return letters.toString();
    }

    private static char outcome(Expression expression, Map<String, String> properties) {
        try {
            Object truth = expression.evaluate(new MessageEvaluationContext(properties));
            return truth == null ? 'N' : (Boolean) truth ? 'T' : 'F';
        } catch (Throwable error) {
            return 'E';
        }
    }
}
