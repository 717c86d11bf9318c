"""Statements on tenants: their keys and settings."""
