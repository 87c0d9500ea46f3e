"""Orderer: the shell that runs one replica of a child under Faust."""
