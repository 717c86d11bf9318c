"""Tasks: the operations of people and agents."""
