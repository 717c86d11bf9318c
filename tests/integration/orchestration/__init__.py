"""Orchestrations on real servers."""
