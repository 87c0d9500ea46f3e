"""Ordered records by the name that the driver still imports; each kind of record has its module."""

from slackwater.codec.ordered_records import encode_ordered

__all__ = ["encode_ordered"]
