"""Routes of runs and threads."""
