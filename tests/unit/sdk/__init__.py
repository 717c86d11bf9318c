"""Tools in Python, without a fleet."""
