"""Sessions: the complete logic of orderers and roots, without I/O (``session.py``)."""
