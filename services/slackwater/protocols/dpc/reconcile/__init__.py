"""Reconciliation: replicas catch up in turns, and lines join when their readers are near.

At least one replica continues to answer while another reconciles (DPC, section 4.4.3).
"""
