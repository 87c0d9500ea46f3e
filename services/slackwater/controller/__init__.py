"""A controller: one member of the group that keeps queries, nodes and placement.

``wire`` encodes values and ``store`` keeps them on disk. No host carries out what is kept yet.
"""
