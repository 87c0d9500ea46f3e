"""Reconciliation: replicas catch up one at a time, and lines join when their readers are near.

At least one replica continues to answer while another reconciles (DPC, section 4.4.3).
"""
