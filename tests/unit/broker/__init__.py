"""Connections to the broker."""
