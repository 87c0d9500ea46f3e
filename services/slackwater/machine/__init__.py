"""One machine: broker, supervisor, processes and their commands, `up`, sizing."""
