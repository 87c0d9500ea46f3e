"""Reconciliation without a stop: replicas catch up in turns, lines join when readers are near.

DPC, section 4.4.3: at least one replica goes on answering while another one is corrected.
"""
