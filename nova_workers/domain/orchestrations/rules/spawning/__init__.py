"""Children: what they are, hold and are given, from the request of their parent."""
