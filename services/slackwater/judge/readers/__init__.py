"""The judge's own readers of input: one row or message at a time.

They are written from ``docs/deployment-file.md`` and share nothing with the proxy, whose readers
they check; an import contract forbids it. A judge that shares a rule with a reader is wrong with it
and agrees. The proxy converts columns as units, by pyarrow and numpy. These readers convert one
text at a time, by the standard library: ``csv``, ``json``, ``datetime``, ``zoneinfo``, ``decimal``.

``rows`` divides a file into rows, ``cells`` reads one text, ``files`` makes readings of rows, and
``messages`` of JSON.
"""
