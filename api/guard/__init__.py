"""What a request passes before its route: limits on rates, keys and bodies."""
