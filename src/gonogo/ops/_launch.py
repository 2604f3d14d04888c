"""Size of a program's block → how many warps run it."""


def count_warps(block: int) -> int:
    """16 elements to a thread from 2,048 on: a row of 65,536 in four warps would not fit their registers.

    >>> count_warps(1024), count_warps(65536)
    (4, 32)
    """
    return max(4, min(32, block // 512))
