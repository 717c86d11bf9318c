"""`nova login` and `nova logout`: sessions of people by the provider of single sign-on."""
