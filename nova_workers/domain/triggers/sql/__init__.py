"""Statements on triggers: definitions, firings, outcomes."""
