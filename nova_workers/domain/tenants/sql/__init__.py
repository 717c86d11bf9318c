"""Statements on tenants: their settings and their end."""
