"""Protocol cores: one folder per paper, and ``common`` for what several papers share.

Protocols do no I/O: time, randomness and events are arguments, effects are returned as frozen
values (checked by import-linter and ruff). No paper's folder imports another's.
"""
