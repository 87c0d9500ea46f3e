"""Many fragments in one process: the driver, Faust, logs that fragments share, whose turn it is."""
