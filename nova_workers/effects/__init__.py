"""What follows a run: its messages become vectors, its thread gets a title. Driven by rows, never by the run."""
