import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.action.RocketMQAction;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.annotation.CFNotNull;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/**
 * Prints, as one JSON object, what the RocketMQ classes on the class path declare: every header class with its
 * fields (superclasses included, as they travel on the wire), and the numbers of requests, responses, languages
 * and versions. Keys are sorted, so that two runs on the same jars print the same text.
 */
public final class HeaderClasses {
    public static void main(String[] args) throws Exception {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("requestCodes", intConstants(RequestCode.class));
        facts.put("responseCodes", intConstants(ResponseCode.class));
        facts.put("languages", languages());
        facts.put("versions", versions());
        facts.put("currentVersion", MQVersion.CURRENT_VERSION);
        facts.put("headers", headers());
        StringBuilder text = new StringBuilder();
        write(text, facts, "");
        new PrintStream(System.out, true, StandardCharsets.UTF_8).println(text);
    }

    private static Map<String, Object> intConstants(Class<?> type) throws IllegalAccessException {
        Map<String, Object> constants = new TreeMap<>();
        for (Field field : type.getFields()) {
            boolean number = field.getType() == int.class || field.getType() == short.class;
            if (number && Modifier.isStatic(field.getModifiers())) {
                constants.put(field.getName(), field.getInt(null));
            }
        }
        return constants;
    }

    private static Map<String, Object> languages() {
        Map<String, Object> codes = new TreeMap<>();
        for (LanguageCode language : LanguageCode.values()) {
            codes.put(language.name(), (int) language.getCode());
        }
        return codes;
    }

    private static Map<String, Object> versions() {
        Map<String, Object> ordinals = new LinkedHashMap<>();
        for (MQVersion.Version version : MQVersion.Version.values()) {
            ordinals.put(version.name(), version.ordinal());
        }
        return ordinals;
    }

    private static Map<String, Object> headers() throws Exception {
        Map<String, Object> headers = new TreeMap<>();
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            File jar = new File(path);
            if (!jar.getName().startsWith("rocketmq-") || !jar.getName().endsWith(".jar")) {
                continue;
            }
            try (JarFile entries = new JarFile(jar)) {
                for (Enumeration<JarEntry> all = entries.entries(); all.hasMoreElements(); ) {
                    Class<?> type = headerClass(all.nextElement().getName());
                    if (type != null) {
                        headers.put(type.getName(), describe(type));
                    }
                }
            }
        }
        return headers;
    }

    private static Class<?> headerClass(String entry) {
        if (!entry.startsWith("org/apache/rocketmq/") || !entry.endsWith(".class")) {
            return null;
        }
        String name = entry.substring(0, entry.length() - ".class".length()).replace('/', '.');
        try {
            Class<?> type = Class.forName(name, false, HeaderClasses.class.getClassLoader());
            return CommandCustomHeader.class.isAssignableFrom(type) && !type.isInterface() ? type : null;
        } catch (LinkageError | ClassNotFoundException unloadable) {
            return null; // a class that needs a library which is not there is no header
        }
    }

    private static Map<String, Object> describe(Class<?> type) {
        Map<String, Object> header = new LinkedHashMap<>();
        RocketMQAction action = type.getAnnotation(RocketMQAction.class);
        if (action != null) {
            header.put("request", action.value());
        }
        header.put("abstract", Modifier.isAbstract(type.getModifiers()));
        header.put("superclass", type.getSuperclass().getName());
        Object blank = blank(type);
        Map<String, Object> fields = new TreeMap<>();
        for (Class<?> owner = type; owner != Object.class; owner = owner.getSuperclass()) {
            for (Field field : owner.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !field.getName().startsWith("this")) {
                    fields.putIfAbsent(field.getName(), describe(field, owner, blank));
                }
            }
        }
        header.put("fields", fields);
        return header;
    }

    private static Map<String, Object> describe(Field field, Class<?> owner, Object blank) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("type", field.getType().getName());
        facts.put("required", field.isAnnotationPresent(CFNotNull.class));
        facts.put("declaredBy", owner.getSimpleName());
        Object value = defaultOf(field, blank);
        if (value != null && !isNow(value)) {
            facts.put("default", value.toString());
        }
        return facts;
    }

    private static Object blank(Class<?> type) {
        try {
            Constructor<?> constructor = type.getDeclaredConstructor();
            constructor.setAccessible(true);
            return constructor.newInstance();
        } catch (ReflectiveOperationException none) {
            return null;
        }
    }

    private static Object defaultOf(Field field, Object blank) {
        if (blank == null) {
            return null;
        }
        try {
            field.setAccessible(true);
            return field.get(blank);
        } catch (ReflectiveOperationException hidden) {
            return null;
        }
    }

    /** A default that is the moment of construction says nothing about the wire and differs in every run. */
    private static boolean isNow(Object value) {
        return value instanceof Long && Math.abs((Long) value - System.currentTimeMillis()) < 3_600_000L;
    }

    /** Maps of maps one member a line, a map that holds only plain values on one line. */
    private static void write(StringBuilder out, Object value, String indent) {
        if (!(value instanceof Map)) {
            out.append(value instanceof String ? quote((String) value) : String.valueOf(value));
            return;
        }
        Map<?, ?> map = (Map<?, ?>) value;
        boolean flat = map.values().stream().noneMatch(member -> member instanceof Map);
        String inner = indent + " ";
        List<String> members = new ArrayList<>();
        for (Map.Entry<?, ?> member : map.entrySet()) {
            StringBuilder text = new StringBuilder(quote((String) member.getKey())).append(": ");
            write(text, member.getValue(), inner);
            members.add(text.toString());
        }
        if (flat) {
            out.append('{').append(String.join(", ", members)).append('}');
        } else {
            out.append("{\n").append(inner).append(String.join(",\n" + inner, members));
            out.append('\n').append(indent).append('}');
        }
    }

    private static String quote(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
