"""Projects: what a repository says of agents, skills and triggers, compared with the fleet and applied to it."""
