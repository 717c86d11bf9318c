"""`make soak`: a fleet under steady load, and whether what it uses stays flat."""
