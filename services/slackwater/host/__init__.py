"""A process that runs fragments: their sessions, driver, shared logs, Faust, transactions."""
