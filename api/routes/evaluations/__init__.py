"""Routes of datasets and evaluations."""
