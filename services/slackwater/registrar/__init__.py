"""Registrar: registers the queries of a deployment whose processes are started externally."""
