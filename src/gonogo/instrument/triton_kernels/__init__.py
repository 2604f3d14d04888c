"""Triton kernels of the GPU path, launched by path_triton and first_pass and nowhere else."""
