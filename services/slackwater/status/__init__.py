"""What runs, compared with what should run, as values for commands and metrics."""
