"""SQL of orchestrations: their configuration, agents and messages."""
