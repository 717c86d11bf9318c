"""The orchestration tools: what an agent of an orchestration has besides its own tools, by its role."""
