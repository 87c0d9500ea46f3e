"""Sensor proxy: readings become a gap-free, promised source log (rules 1, 6, 9, 10)."""
