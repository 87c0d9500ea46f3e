"""Fragments as values: all that an orderer or a root does, without I/O (``session.py``)."""
