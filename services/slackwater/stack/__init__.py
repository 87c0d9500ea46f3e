"""A whole deployment on this machine: broker, controller and node in one process."""
