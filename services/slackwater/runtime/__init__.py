"""All shared I/O: security, logs, service, host, local. Each may import those before it."""
