"""Runs a deployment on one machine: broker, supervisor, placement, data directory, plan."""
