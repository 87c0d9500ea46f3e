"""Runs the pipeline on user data with injected failures, verified against a batch run."""
