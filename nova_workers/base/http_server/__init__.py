"""Bounds on the connections of our HTTP servers, the API and the console."""
