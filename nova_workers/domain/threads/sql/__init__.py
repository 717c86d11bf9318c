"""Statements on conversations: threads, their turns and messages, compactions."""
