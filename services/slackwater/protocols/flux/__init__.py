"""Flux, process pairs for partitions of a dataflow (Shah, Hellerstein, Brewer).

``pair`` is one copy's view of its pair: who answers, and when the other one takes over.
"""
