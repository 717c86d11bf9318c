"""The means of the homes' statements: the database, sessions, units of work, named SQL.

A statement runs on what it is handed: `Database` gives either a connection on which each statement is its
own transaction (the run protocol: one guarded statement a transition, one round trip), or a transaction.
"""
