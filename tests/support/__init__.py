"""What tests share: real servers, started once for the whole session."""
