"""What people and agents keep beside conversations, and both change: one module a kind of thing.

Above: the HTTP routes and the capabilities, which speak to people and to models. Below: the ledger's SQL. The rules
live here, so that both doors keep the same ones.
"""
