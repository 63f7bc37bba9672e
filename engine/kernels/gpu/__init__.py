"""Kernels for CUDA devices in Triton, one operator per file: kernel, launcher with shape checks, and the configurations
that are shipped. Their meaning is engine/kernels/reference, under the same names. Imported only where triton is."""
