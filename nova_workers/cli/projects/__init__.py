"""`nova init`, `nova plan`, `nova apply` and `nova pull`: a repository of agents, skills and triggers."""
