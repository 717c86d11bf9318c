"""What the operator sees: logs, metrics and traces. Of the base it imports leaves only."""
