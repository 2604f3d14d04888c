"""The optional C extensions; everything else stands in pyproject.toml.

Where there is no compiler the build goes on without it and gonogo falls back to NumPy.
"""

import sys
from pathlib import Path

from setuptools import Extension, setup

# Maxima and percentiles must agree to the bit with the other paths: no contraction, no reassociation.
# `-fopenmp-simd` only lets the marked reductions vectorise; there is no OpenMP runtime.
FLAGS = ["-O3", "-std=c11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd"]


def make_extension(package: str) -> Extension:
    """`_native` of a package, from its folder `native`."""
    folder = Path("src", *package.split("."), "native")
    return Extension(
        f"{package}._native",
        sources=[str(path) for path in sorted(folder.glob("*.c"))],
        depends=[str(path) for path in sorted(folder.glob("*.h"))],
        extra_compile_args=[] if sys.platform == "win32" else FLAGS,
        py_limited_api=True,
        optional=True,
    )


setup(
    ext_modules=[make_extension("gonogo.cases"), make_extension("gonogo.instrument")],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
