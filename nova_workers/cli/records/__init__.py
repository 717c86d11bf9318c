"""Commands that read the ledger: runs, threads, waits, usage, search."""
