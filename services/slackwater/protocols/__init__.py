"""The papers: a folder each, and ``common`` for what several of them use.

A protocol here does no I/O: time, randomness and events come in as arguments, effects go out as
frozen values (import-linter and ruff check it). No paper's folder imports another's.
"""
