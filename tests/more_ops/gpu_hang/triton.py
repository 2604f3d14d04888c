import torch
import triton
import triton.language as tl


@triton.jit
def wait_kernel(out_ptr):
    while tl.atomic_add(out_ptr, 1) >= 0:
        pass


def never_ends(x):
    turns = torch.zeros(1, dtype=torch.int64, device=x.device)
    wait_kernel[(1,)](turns)
    return x.clone()
