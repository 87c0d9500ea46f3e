"""How a client proves who it is to Kafka, and Kafka to it; files that their owner alone reads."""
