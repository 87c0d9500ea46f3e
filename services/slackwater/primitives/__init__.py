"""Pure data structures that the protocols share: windows, slices, expressions, clocks, ids."""
