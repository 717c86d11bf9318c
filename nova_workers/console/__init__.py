"""The web console: a web application for people. It is a client of the HTTP API, and of nothing else.

`app` builds it from `pages`; `guard` stands before every request, `rendering` behind every page. It keeps no state
between requests, so any number of processes can serve it.
"""
