"""`make demo`: a temporary fleet on this machine."""
