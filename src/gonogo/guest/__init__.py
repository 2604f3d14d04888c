"""A kernel's own process: arguments in, outputs out. Imports nothing of gonogo, and knows of nothing that judges.

The same code calls kernels in this process, for `gonogo.verify` and campaigns.
"""
