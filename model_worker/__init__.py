"""One model behind HTTP: an OpenAI-compatible server, and a worker of the arena."""
