"""Statements of the run protocol: each transition is one guarded statement."""
