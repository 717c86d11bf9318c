"""Import of an exported tenant: validation of rows, and writing them."""
