"""A whole deployment on one machine: broker, supervisor, placement, data directory, its plan."""
