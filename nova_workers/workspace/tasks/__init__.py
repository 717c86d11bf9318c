"""Tasks: the one door for people and for agents."""
