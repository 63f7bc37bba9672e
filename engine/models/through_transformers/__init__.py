"""Models of architectures that Agon has no code for: transformers' own modelling code, on Agon's pages.

Only `way.py` may be imported by others: it imports transformers when a model is built, never before.
"""
