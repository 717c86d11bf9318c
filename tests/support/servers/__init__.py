"""Servers on loopback and databases that tests start."""
