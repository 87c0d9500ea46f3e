"""Client library: follows the three result topics of a query as one stream."""
