"""The typed client of the HTTP API: the one way in which commands reach a fleet."""
