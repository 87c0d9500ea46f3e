"""SUnion: sorts the tuples of several inputs into buckets of event time (DPC, section 4.2).

``core`` decides what an orderer emits, stable and tentative; ``cursor`` reads source logs,
``chain`` another query's results; ``operators`` and ``join`` compute the content of a bucket;
``recovery`` finds the position to continue from after a crash (4.5).
"""
