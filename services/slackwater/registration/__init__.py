"""A query in Kafka, from its start time over its generations to the deletion of its topics."""
