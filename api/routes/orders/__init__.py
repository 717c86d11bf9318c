"""Routes of work orders."""
