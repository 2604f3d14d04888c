"""The optional C extension; everything else stands in pyproject.toml.

Where there is no compiler the build goes on without it and gonogo falls back to NumPy.
"""

import sys
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/gonogo/instrument/native")
# Maxima and percentiles must agree to the bit with the other paths: no contraction, no reassociation.
# `-fopenmp-simd` only lets the marked reductions vectorise; there is no OpenMP runtime.
FLAGS = ["-O3", "-std=c11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd"]

setup(
    ext_modules=[
        Extension(
            "gonogo.instrument._native",
            sources=[str(path) for path in sorted(NATIVE.glob("*.c"))],
            depends=[str(path) for path in sorted(NATIVE.glob("*.h"))],
            extra_compile_args=[] if sys.platform == "win32" else FLAGS,
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
