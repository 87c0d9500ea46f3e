"""HTTP input: a request with readings is answered once its readings are durable in the spool.

``server`` listens in a separate thread, ``app`` checks a request and passes its body to the stream,
``bodies`` has the formats and ``tokens`` the credentials. The stream's side is ``proxy.pushed``.
"""
