"""The run protocol: submit, claim, execute, journal, finish, cancel, recover."""
