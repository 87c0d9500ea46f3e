"""Shared vocabulary: deployment, records, names, durations, limits and errors.

Depends on the standard library and numpy only, so that every other package can import it.
"""
