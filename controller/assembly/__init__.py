"""Builds the parts of the controller from its settings: which part gets which is written here and nowhere else."""
