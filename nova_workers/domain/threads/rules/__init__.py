"""Ownership of threads (Redis lock, Postgres lease), and their transcripts."""
