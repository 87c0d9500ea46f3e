"""Delivery: a query's results in order, in batches that are complete, to a target: alerts.

No I/O. ``batches`` cuts the results, ``evaluation`` makes alert records of them, and
``slackwater.sessions.delivery`` is the fragment that reads, evaluates and commits.
"""
