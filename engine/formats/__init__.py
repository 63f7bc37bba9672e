"""Formats of quantised checkpoints: each reads the tensors of one layer as a QuantisedMatrix."""
