"""Rehearsal: the user's own data and failures on the real pipeline, judged by a batch job."""
