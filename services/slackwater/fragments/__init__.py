"""What a session needs on Kafka to be a fragment: its logs, its writer, a root's transactions."""
