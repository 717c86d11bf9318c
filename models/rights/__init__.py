"""Roles of the database: what each may see and change."""
