"""The shell of a fragment's session on Kafka: its logs, its writer, a root's transactions."""
