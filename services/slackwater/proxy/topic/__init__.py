"""Input from an existing Kafka topic: clients that read messages, and the stream's input."""
