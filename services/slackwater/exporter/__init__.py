"""Exporter: serves a deployment's metrics for Prometheus."""
