"""Common to all processes: entry point, settings, logging, clock, heartbeats, registry, state."""
