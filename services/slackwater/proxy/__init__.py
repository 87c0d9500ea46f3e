"""Sensor proxy: readings become a gap-free, promised source log.

See rule-1, rule-6, rule-9, rule-10.
"""
