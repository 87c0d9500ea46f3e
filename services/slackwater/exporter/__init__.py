"""The exporter: what a deployment says of itself, for Prometheus."""
