"""Formats with several readings in a message, or with schemas: messages to columns of readings.

The *elements* of a message are its readings, each with an index. A malformed element is refused
alone. A message that cannot be divided into elements is refused as a unit.
"""
