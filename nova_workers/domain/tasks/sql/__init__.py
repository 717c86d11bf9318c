"""Statements on tasks: plan, history, schedule."""
