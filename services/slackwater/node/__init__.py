"""The control plane on one machine: it runs what the replicated record has placed there."""
