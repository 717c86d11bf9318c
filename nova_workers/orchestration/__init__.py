"""Orchestrations: agents that start, question and end other agents in one job."""
