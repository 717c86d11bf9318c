"""Request and response bodies of the HTTP API, shared by the API and the typed client."""
