"""Protocol cores: a folder per paper (``dpc``), and ``common`` for what several papers share.

Fargo's slices and deltas are in ``primitives`` and in the Spark jobs.

Protocols do no I/O: time, randomness and events are arguments, effects are returned as frozen
values (checked by import-linter and ruff).
"""
