"""Words that everything shares: ids, records, effects and errors.

Standard library and numpy only, so that every other package may import it.
"""
