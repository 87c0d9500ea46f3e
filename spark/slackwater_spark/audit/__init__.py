"""A query's stable results, computed once more as a Spark batch job, and compared."""
