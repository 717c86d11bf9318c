"""What no customer may see, and how it is found in the artifacts of an order."""
