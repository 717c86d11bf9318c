"""Backups of the whole ledger, for operators; `cli.archive` exports one tenant."""
