"""Pure parts that several protocols need: windows and slices, delta-CRDTs, contiguous ids."""
