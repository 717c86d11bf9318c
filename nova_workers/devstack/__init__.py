"""The fleet on one machine: embedded Postgres and Valkey, and a supervisor for every process.

In production both servers are given by URL and the platform supervises. Only the command line imports this package.
"""
