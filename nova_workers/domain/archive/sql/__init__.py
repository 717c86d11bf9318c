"""Statements for export and import of a tenant."""
