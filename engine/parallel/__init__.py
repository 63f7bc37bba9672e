"""Tensor parallelism: one model divided among several processes, which compute every step together. Knows no model."""
