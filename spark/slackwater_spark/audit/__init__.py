"""Audit: recomputes a query's stable results as a Spark batch job and compares."""
