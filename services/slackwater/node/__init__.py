"""A machine's part of the control plane: it carries out what the replicated record wants."""
