"""Commands about datasets and evaluations."""
