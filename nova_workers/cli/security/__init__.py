"""`nova security`: what a caller from outside sees of a fleet's walls."""
