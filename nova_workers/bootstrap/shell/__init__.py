"""How the commands of agents are run, and confined."""
