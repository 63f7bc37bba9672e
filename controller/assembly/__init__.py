"""Builds the parts of the controller from its settings: who works with whom is written here and nowhere else."""
