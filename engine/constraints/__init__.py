"""Structured output: which tokens an output may contain, from its constraint to the masks of a step."""
