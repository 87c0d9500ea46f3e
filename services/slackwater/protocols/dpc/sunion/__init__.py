"""SUnion: sorts the tuples of several inputs into buckets of event time (DPC, section 4.2).

``core`` decides what an orderer emits, stable and tentative; ``cursor`` reads source logs,
``chain`` another query's results; ``operators`` and ``join`` are what is computed in a bucket;
``recovery`` finds the place to go on after a crash (4.5).
"""
