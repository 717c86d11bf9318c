"""Guarded HTTP requests to addresses that agents and tenants name. Rules are apart from the client that obeys them."""
