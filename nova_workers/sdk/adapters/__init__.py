"""Agents of other libraries as durable agents in Python. Each module needs the library of its name."""
