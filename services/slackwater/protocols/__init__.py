"""One folder per paper, each ignorant of the others.

A protocol here does no I/O: time, randomness and events come in as arguments, effects go out as
frozen values (import-linter and ruff check it).
"""
