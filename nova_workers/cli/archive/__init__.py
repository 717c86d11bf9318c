"""`nova export` and `nova import`."""
