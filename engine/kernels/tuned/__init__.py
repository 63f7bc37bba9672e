"""Measured tile sizes, one table for each compute capability: sm_80.json, sm_89.json, sm_90.json.

`python -m benchmarks.kernels tune` writes the one of the device that it runs on. Where there is no table, or no entry
in it, formulas serve (engine/kernels/gpu/attention_tiles.py). There is none yet: no device has been measured.
"""
