"""`make demo`: a fleet of its own on this machine."""
