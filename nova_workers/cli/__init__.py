"""The `nova` command: an HTTP client like any other, and the starter of every process of the fleet."""
