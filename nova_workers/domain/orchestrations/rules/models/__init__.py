"""Which models an orchestration may choose from, how good each is for what, and the choice."""
