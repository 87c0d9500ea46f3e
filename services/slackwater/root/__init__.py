"""Root: the process that merges the children of one part and writes the results."""
