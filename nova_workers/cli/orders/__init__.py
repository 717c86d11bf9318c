"""Commands of work orders."""
