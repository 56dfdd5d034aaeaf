import java.util.concurrent.TimeUnit;

/**
 * Apache's client, when it is shut down, waits for its event thread, which looks at the stop flag only every three
 * seconds. Waking that thread costs nothing and makes programs with many short-lived clients several times faster.
 */
public final class Impatience {
    private static final String EVENT_THREAD = "NettyEventExecutor";
    private static final long WAKE_MILLIS = 50;

    private Impatience() {
    }

    static void begin() {
        Thread waker = new Thread(() -> {
            while (true) {
                Thread.getAllStackTraces().keySet().stream()
                    .filter(thread -> thread.getName().equals(EVENT_THREAD))
                    .forEach(Thread::interrupt);
                try {
                    TimeUnit.MILLISECONDS.sleep(WAKE_MILLIS);
                } catch (InterruptedException end) {
                    return;
                }
            }
        }, "impatience");
        waker.setDaemon(true);
        waker.start();
    }
}
