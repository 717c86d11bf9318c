"""Routes of the workspace."""
