"""Conversations as the chat shows them: from the ledger, and from the events of the run that is under way."""
