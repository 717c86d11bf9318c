"""Endpoints of orchestrations."""
