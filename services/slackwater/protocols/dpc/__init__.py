"""DPC (Balazinska et al.): delay, process and correct; the stable and the live line.

Orderer and root run the same machinery: the orderer over sources, the root over children.
"""
