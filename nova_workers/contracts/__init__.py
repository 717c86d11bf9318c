"""Values and Protocols that cross seams. Nothing here does work, and nothing here imports a vendor."""
