"""Commands that talk with an agent, and follow the run."""
