"""The persistent log of a data source and its boundaries (DPC, sections 2.2 and 4.2.3).

``core`` makes records of readings, once, with contiguous ids and a promise; ``scan`` reads the log
to find where its next writer goes on.
"""
