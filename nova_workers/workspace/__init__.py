"""What people and agents keep besides conversations: one module per kind.

Above: the HTTP routes and the capabilities. Below: the ledger's SQL. The rules live here, so that both entry points
apply the same ones.
"""
