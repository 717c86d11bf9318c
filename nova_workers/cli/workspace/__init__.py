"""Commands on what people and agents keep: agents, tasks, notes, triggers and the like."""
