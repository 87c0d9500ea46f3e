"""Shared vocabulary: ids, records, effects and errors.

Depends on the standard library and numpy only, so that every other package can import it.
"""
