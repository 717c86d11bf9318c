"""Values and Protocols that cross seams. They do no I/O and import no vendor's SDK."""
