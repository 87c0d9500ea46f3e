"""Runs many fragments in one process: the driver, Faust, shared logs, scheduling of turns."""
