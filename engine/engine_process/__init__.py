"""The engine in a process of its own: its parent has the callers, it does all work of a step. Nothing that one of them
sends is unpickled.
"""
