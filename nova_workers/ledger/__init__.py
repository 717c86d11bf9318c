"""SQL over `models`: one module a table family. Nothing here commits by itself.

A statement runs on what it is handed: `Database` gives either a connection on which each statement is its
own transaction (the run protocol: one guarded statement a transition, one round trip), or a transaction.
"""
