"""Rehearsal: runs the pipeline on user data with faults, verified against a batch run."""
