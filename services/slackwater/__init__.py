"""Windows over sensor streams that never stall and never lie."""
