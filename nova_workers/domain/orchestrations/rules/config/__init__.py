"""The configuration of orchestrations: YAML, checked as a whole, and stored in versions."""
