import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Windows of a second by sensor, in Flink SQL on its local mini-cluster.
 *
 * Arguments: bootstrap, folder for checkpoints, watermark delay in ms, idle time-out in ms (0: none,
 * a source that is silent holds up all windows). Started again it goes on from its last checkpoint.
 */
public final class FlinkPeer {
    public static void main(String[] args) throws IOException {
        Path folder = Path.of(args[1]);
        Configuration config = new Configuration();
        config.setString("execution.checkpointing.dir", folder.toUri().toString());
        // Exactly-once answers are seen when a checkpoint is complete: its interval is a latency.
        config.setString("execution.checkpointing.interval", "1 s");
        config.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        config.setString(
            "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        last(folder).ifPresent(
            path -> config.setString("execution.state-recovery.path", path.toUri().toString()));
        config.setString("table.local-time-zone", "UTC");
        config.setString("table.exec.source.idle-timeout", args[3] + " ms");

        StreamExecutionEnvironment env =
            StreamExecutionEnvironment.createLocalEnvironment(2, config);
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.executeSql(
            "CREATE TABLE readings (ts BIGINT, sensor STRING, `value` DOUBLE,"
                + " stamped AS TO_TIMESTAMP_LTZ(ts, 3),"
                + " WATERMARK FOR stamped AS stamped - INTERVAL '" + seconds(args[2])
                + "' SECOND) WITH ("
                + "'connector' = 'kafka', 'topic' = 'readings', 'format' = 'json',"
                + "'properties.bootstrap.servers' = '" + args[0] + "',"
                + "'properties.group.id' = 'peer', 'scan.startup.mode' = 'earliest-offset')");
        tables.executeSql(
            "CREATE TABLE answers (sensor STRING, `start` BIGINT, `count` BIGINT, `avg` DOUBLE,"
                + " `min` DOUBLE, `max` DOUBLE) WITH ("
                + "'connector' = 'kafka', 'topic' = 'answers', 'format' = 'json',"
                + "'properties.bootstrap.servers' = '" + args[0] + "',"
                + "'properties.transaction.timeout.ms' = '600000',"
                + "'sink.delivery-guarantee' = 'exactly-once',"
                + "'sink.transactional-id-prefix' = 'peer')");
        tables.executeSql(
            "INSERT INTO answers SELECT sensor,"
                + " 1000 * CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00',"
                + " window_start) AS BIGINT),"
                + " COUNT(*), AVG(`value`), MIN(`value`), MAX(`value`)"
                + " FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(stamped), INTERVAL '1' SECOND))"
                + " GROUP BY window_start, window_end, sensor");
    }

    private static String seconds(String ms) {
        return String.valueOf(Long.parseLong(ms) / 1000);
    }

    /** The last complete checkpoint of any run before. */
    private static Optional<Path> last(Path folder) throws IOException {
        if (!Files.isDirectory(folder)) {
            return Optional.empty();
        }
        try (Stream<Path> files = Files.walk(folder)) {
            return files.filter(path -> path.endsWith("_metadata"))
                .max(Comparator.comparingLong(path -> path.toFile().lastModified()))
                .map(Path::getParent);
        }
    }
}
