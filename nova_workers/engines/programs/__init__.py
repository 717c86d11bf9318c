"""What engines over a vendor's program share: private home, process, bridge to the turn's tools, and the turn."""
