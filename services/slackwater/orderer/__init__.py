"""Orderer: the process that runs one replica of a child under Faust."""
