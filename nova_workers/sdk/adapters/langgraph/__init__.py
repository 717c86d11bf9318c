"""A compiled graph of LangGraph as an agent: its checkpoints are steps of the run's journal."""

from nova_workers.sdk.adapters.langgraph.playing import OnInterrupt, ask_user, run_graph

__all__ = ["OnInterrupt", "ask_user", "run_graph"]
