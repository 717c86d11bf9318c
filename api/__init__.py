"""The HTTP front door: a thin layer that authenticates, checks, writes one row and answers.

It holds no state that a restart would lose: what it accepts is in Postgres before the caller hears so, and
what it streams can be replayed from there.
"""
