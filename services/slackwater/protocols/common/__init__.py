"""Shared by the protocols: the two lines over event time, and inputs read from logs.

``line`` decides when a unit of event time is answered, ``states`` is the table of an output's
states (DPC, Figure 5), ``inputs`` feeds cursors from live and catch-up readers, ``ends`` tests
whether a log has been read to an end offset.
"""
