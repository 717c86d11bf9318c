"""`nova acp`: an agent of the fleet in an editor, by the Agent Client Protocol on stdin and stdout."""
