"""Commands for the workspace: agents, tasks, notes, triggers and the like."""
