"""Which requests run, and which of their tokens each step computes. Imports no torch. Used by one thread, except for
admission control."""
