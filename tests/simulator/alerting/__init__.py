"""Alerts over results with failures, corrections, generations and cuts, from a seed."""
