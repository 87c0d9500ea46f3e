"""Verifies results and their latency against a batch computation independent of the pipeline.

``batch`` computes the windows from the readings, ``oracle`` evaluates expressions with SQLite,
``check`` compares the results with them (``history``: those of a backfill), and ``bound`` and
``latency`` check the answers' times.
"""
