"""One turn of a run: assembling what the engine gets, recording what it does."""
