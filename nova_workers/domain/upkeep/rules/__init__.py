"""Periodic maintenance of stored data: retention, and the backfill of search."""
