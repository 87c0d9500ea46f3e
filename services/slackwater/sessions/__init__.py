"""Sessions: all that an orderer or a root does, without I/O (``session.py``).

``orderer`` and ``root`` are the two sessions. They use the cores of ``protocols.dpc``, return
``effects``, and run procedures that yield ``requests``; a host answers these.
"""
