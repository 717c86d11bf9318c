"""The fleet beside other servers of agents, from PyPI, with the same agent: one that answers the message reversed."""
