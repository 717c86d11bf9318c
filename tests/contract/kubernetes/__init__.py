"""The chart for Helm: what it renders with each set of values, and what Kubernetes says of that."""
