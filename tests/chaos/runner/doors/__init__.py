"""Clients of doors: each follows the rules of its protocol, and knows nothing else of the fleet."""
