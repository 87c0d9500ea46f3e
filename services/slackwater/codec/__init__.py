"""Bytes to model and back, through the schemas in `schemas/`."""
