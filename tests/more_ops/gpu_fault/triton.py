import torch
import triton
import triton.language as tl


@triton.jit
def write_kernel(out_ptr):
    tl.store(out_ptr + (1 << 44), 1.0)


def writes_nowhere(x):
    out = torch.empty_like(x)
    write_kernel[(1,)](out)
    return out
