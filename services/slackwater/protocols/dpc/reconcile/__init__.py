"""Reconciliation: how replicas catch up after a failure (DPC, section 4.4.3).

``staggering`` lets the replicas catch up one at a time. ``downstream`` delays the join of a
replica's lines until the roots have read most of its corrections.
"""
