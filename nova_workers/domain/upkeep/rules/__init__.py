"""Periodic maintenance of stored data: retention, backfill of search, moves of renamed agents, ends of tenants."""
