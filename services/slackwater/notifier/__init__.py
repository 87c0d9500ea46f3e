"""A process that sends alerts from Kafka to Alertmanager and to a webhook."""
