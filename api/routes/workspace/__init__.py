"""Routes of what people and agents keep."""
