"""The process that runs any number of fragments."""
