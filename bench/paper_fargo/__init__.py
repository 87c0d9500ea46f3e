"""The experiments of Sharma's thesis on Fargo, repeated."""
