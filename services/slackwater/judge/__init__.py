"""Are the answers right, and in time? A batch computation beside the pipeline, and the comparison.

``batch`` computes the windows from the readings, ``oracle`` evaluates expressions with SQLite,
``check`` compares, ``bound`` and ``latency`` judge when answers came.
"""
