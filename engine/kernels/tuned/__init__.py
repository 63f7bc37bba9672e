"""Measured tile sizes, one table per compute capability: sm_80.json, sm_89.json, sm_90.json.

`python -m benchmarks.kernels tune` writes the table of the device that it runs on. Without a table or an entry, tile
sizes come from formulas (engine/kernels/gpu/attention_tiles.py). There is no table yet: no device has been measured.
"""
