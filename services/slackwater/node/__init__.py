"""A machine's part of the control plane: it runs what the replicated record has placed on it."""
