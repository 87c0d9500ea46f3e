"""Pure data structures shared by protocols: windows, slices, delta-CRDTs, contiguous ids."""
