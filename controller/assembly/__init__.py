"""Builds the parts of the controller from its settings. Which part works with which is written only here."""
