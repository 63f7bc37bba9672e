"""The worker's routes, one module per kind of access: probes (open), openai (users), internal (controllers)."""
