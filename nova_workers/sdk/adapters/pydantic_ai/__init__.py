"""An agent of Pydantic AI as a durable agent: its model requests and tool calls are steps of the run's journal."""

from nova_workers.sdk.adapters.pydantic_ai.playing import run_agent

__all__ = ["run_agent"]
