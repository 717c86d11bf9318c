"""Doors: protocols that clients already speak. A door translates, and keeps no state; `service` does all else."""
