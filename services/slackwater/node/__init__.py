"""The process on one machine that runs what the replicated record has placed there."""
