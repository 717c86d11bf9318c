"""The capabilities that ship with the fleet, one module each with a function ``capability(parts)``."""
