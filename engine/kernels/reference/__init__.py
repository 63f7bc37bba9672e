"""Plain torch versions of the kernels of engine/kernels/gpu, one file per operator under the same name: what they mean,
without regard to speed. Together the functions here are one implementation of StepKernels."""
