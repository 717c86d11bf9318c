"""Statements on message search: words, vectors, and what the backfill reads."""
