"""Export of a tenant, and import of an exported one: validation of rows, and writing them."""
