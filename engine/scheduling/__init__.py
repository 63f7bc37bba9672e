"""Which requests run, and which of their tokens each step computes. Imports no torch; one thread, but for admission."""
