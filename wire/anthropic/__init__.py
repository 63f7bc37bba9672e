"""Anthropic's `/v1/messages`: its requests as chat requests, and answers and errors in its shape. Pure."""
