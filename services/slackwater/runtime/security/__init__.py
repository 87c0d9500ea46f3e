"""Mutual authentication of clients and Kafka, access control lists, and owner-only files."""
