"""Import of an exported tenant: what rows must be, and how they are written."""
