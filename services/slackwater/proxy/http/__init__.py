"""HTTP input: requests with readings, answered when their readings are durable in the spool.

``server`` listens in a thread of its own, ``app`` checks a request and passes its body to the
stream, ``bodies`` are the formats, ``tokens`` the secrets. What happens to a request from there on
is in ``proxy.pushed``.
"""
