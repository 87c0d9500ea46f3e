"""Builds the session of an orderer or a root, with its codecs, logs and transactions."""
