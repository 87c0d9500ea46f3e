"""All shared I/O, in rooms: security, logs, service, host, local; each may use those before it."""
