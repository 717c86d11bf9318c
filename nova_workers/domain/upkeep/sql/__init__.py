"""Statements of periodic maintenance: overdue work, retention, cursors."""
