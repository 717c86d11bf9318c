"""Two versions of the fleet, measured in turns."""
