"""The registrar: registers the queries of a deployment whose processes something else starts."""
