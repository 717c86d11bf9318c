"""Commands that send messages to an agent, and follow the run."""
