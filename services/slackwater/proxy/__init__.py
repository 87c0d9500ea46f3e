"""Sensor proxy: turns readings into a gap-free source log with watermarks.

See rule-1, rule-6, rule-9, rule-10.
"""
