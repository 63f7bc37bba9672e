"""Tensor parallelism: one model is divided among several processes, which compute every step together. Knows no
model."""
