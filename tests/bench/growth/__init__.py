"""`make growth`: the cost of each operation by the size of what it works on."""
