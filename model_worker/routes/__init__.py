"""The worker's routes, one module per audience: probes (everybody), openai (users), internal (controllers)."""
