"""Live events of runs: written by workers into Redis Streams, followed by the API on one connection a process."""
