"""The fleet on one machine: embedded Postgres and Valkey, and a supervisor for every process.

Production gives both servers by URL and lets its own platform supervise; nothing outside this package
knows that it exists, except the command line.
"""
