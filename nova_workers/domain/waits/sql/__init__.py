"""Statements on suspended runs: their waits, how waits end, and their questions in the inbox."""
