"""Reads for overviews: a run's timeline, and what people look at first."""
