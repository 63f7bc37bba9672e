"""Speculative decoding: tokens that are proposed cheaply and verified several at a time, without changing any output.

Verification computes a sequence's newest token and k proposed ones in one step and samples after each of them, with the
random numbers that those positions have anyway. Proposed tokens that equal the sampled ones are kept, up to the first
that does not. So every token is the one that a step of its own would have sampled. Used by the scheduler, from one
thread. Imports no torch.
"""
