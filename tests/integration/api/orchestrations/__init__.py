"""Orchestrations over HTTP."""
