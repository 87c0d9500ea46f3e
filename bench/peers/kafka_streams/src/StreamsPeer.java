import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/**
 * Windows of a second by sensor, in Kafka Streams.
 *
 * Arguments: bootstrap, folder for state, grace in ms, "rekey" or "keyed", "final" or "updates".
 * A topic whose partitions are sources has to be grouped by sensor first ("rekey"); one that is
 * partitioned by sensor has not. "final" is suppress(untilWindowCloses), one answer a window;
 * "updates" is what Kafka Streams does without it.
 */
public final class StreamsPeer {
    private static final JsonFactory JSON = new JsonFactory();

    record Reading(long ts, String sensor, double value) {}

    record Figures(long count, double sum, double min, double max) {
        static final Figures NONE =
            new Figures(0, 0, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY);

        Figures with(double value) {
            return new Figures(
                count + 1, sum + value, Math.min(min, value), Math.max(max, value));
        }
    }

    public static void main(String[] args) {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "peer");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, args[1]);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        config.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        // Static membership: an instance that is started again takes its tasks back at once, else
        // they wait for the end of the dead one's session, 45 s.
        config.put(
            StreamsConfig.consumerPrefix(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG), "peer");

        KafkaStreams streams = new KafkaStreams(topology(args), config);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static Topology topology(String[] args) {
        Duration grace = Duration.ofMillis(Long.parseLong(args[2]));
        Serde<Reading> reading =
            Serdes.serdeFrom(StreamsPeer::readingBytes, StreamsPeer::reading);
        Serde<Figures> figures = Serdes.serdeFrom(StreamsPeer::figureBytes, StreamsPeer::figures);

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, Reading> readings = builder.stream(
            "readings",
            Consumed.with(Serdes.String(), reading)
                .withTimestampExtractor((record, before) -> ((Reading) record.value()).ts()));
        if (args[3].equals("rekey")) {
            readings = readings.selectKey((key, value) -> value.sensor());
        }
        KTable<Windowed<String>, Figures> windows = readings
            .groupByKey(Grouped.with(Serdes.String(), reading))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(1), grace))
            .aggregate(
                () -> Figures.NONE,
                (sensor, value, sofar) -> sofar.with(value.value()),
                Materialized.with(Serdes.String(), figures));
        if (args[4].equals("final")) {
            windows = windows.suppress(
                Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()));
        }
        windows.toStream().map(StreamsPeer::answer)
            .to("answers", Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    private static KeyValue<String, String> answer(Windowed<String> window, Figures of) {
        String value = "{\"sensor\":\"" + window.key() + "\",\"start\":" + window.window().start()
            + ",\"count\":" + of.count() + ",\"avg\":" + of.sum() / of.count()
            + ",\"min\":" + of.min() + ",\"max\":" + of.max() + "}";
        return KeyValue.pair(window.key(), value);
    }

    private static Reading reading(String topic, byte[] bytes) {
        if (bytes == null) {
            return null;
        }
        long ts = 0;
        String sensor = null;
        double value = 0;
        try (JsonParser parser = JSON.createParser(bytes)) {
            while (parser.nextToken() != JsonToken.END_OBJECT) {
                String name = parser.currentName();
                if (name == null) {
                    continue;
                }
                parser.nextToken();
                switch (name) {
                    case "ts" -> ts = parser.getLongValue();
                    case "sensor" -> sensor = parser.getText();
                    case "value" -> value = parser.getDoubleValue();
                    default -> parser.skipChildren();
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return new Reading(ts, sensor, value);
    }

    private static byte[] readingBytes(String topic, Reading of) {
        return ("{\"ts\":" + of.ts() + ",\"sensor\":\"" + of.sensor() + "\",\"value\":"
            + of.value() + "}").getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] figureBytes(String topic, Figures of) {
        return of == null ? null : ByteBuffer.allocate(32).putLong(of.count()).putDouble(of.sum())
            .putDouble(of.min()).putDouble(of.max()).array();
    }

    private static Figures figures(String topic, byte[] bytes) {
        if (bytes == null) {
            return null;
        }
        ByteBuffer from = ByteBuffer.wrap(bytes);
        return new Figures(
            from.getLong(), from.getDouble(), from.getDouble(), from.getDouble());
    }
}
