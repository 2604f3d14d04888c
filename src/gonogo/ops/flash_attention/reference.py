"""flash_attention computes what attention does."""

from gonogo.ops.attention.reference import reference

__all__ = ["reference"]
