"""Repeats the experiments of the Flux paper, and its analysis of the time to failure."""
