"""Triton kernels of the GPU path, launched by the modules above by `launch_triton` and nowhere else."""
