"""Input from an existing Kafka topic: a client that reads messages, and what becomes of them."""
