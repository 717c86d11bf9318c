"""One turn of a run: the engine's options, and the record of its steps."""
