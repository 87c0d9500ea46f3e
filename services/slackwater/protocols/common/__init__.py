"""What several protocols build on: two lines over event time, and inputs read from logs.

``line`` decides when a unit of event time is answered, ``states`` is the table of an output's
states (DPC, Figure 5), ``inputs`` feeds cursors from live and catch-up readers, ``ends`` asks how
far logs reach.
"""
