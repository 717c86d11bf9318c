"""Statements on what people and agents keep: agents, skills, notes, memories, secrets."""
