"""What every process has: its main, settings, logging, clock, heartbeats, registry, state."""
