"""The persistent log of a data source and its boundaries (DPC, sections 2.2 and 4.2.3).

``core`` turns readings into records with contiguous ids and watermarks; ``scan`` reads a log to
find where its next writer continues.
"""
