"""Post-run work: indexing of messages, titles of threads. Driven by rows in the ledger, never by the run."""
