"""What ties a fleet to the help desk of Acme."""
