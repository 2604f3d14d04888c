"""Launches, described as JSON on standard input → each compiled for NVIDIA GPUs; prints those that do not."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HOPPER, OTHERS = 90, (80, 100)
"""Of an H100 or H200, for which all is compiled; kernels that are told the capability, for that of others, too."""


def list_capabilities(told: dict[str, Any]) -> tuple[int, ...]:
    """For which GPUs a launch is compiled."""
    return (HOPPER, *OTHERS) if "CAPABILITY" in told["constants"] else (HOPPER,)


def compile_launch(told: dict[str, Any], capability: int) -> str:
    """What is wrong with it, in a line; nothing where it compiles to machine code."""
    if "CAPABILITY" in told["constants"]:  # interpreted, it was told 0
        told = told | {"constants": told["constants"] | {"CAPABILITY": capability}}
    kernel = getattr(import_module(told["module"]), told["name"])
    special = {param.name for param in kernel.params if not param.do_not_specialize}
    ones = [name for name, arg in told["args"].items() if arg["one"] and name in special]
    signature = {name: "constexpr" if name in ones else arg["type"] for name, arg in told["args"].items()}
    constants = dict.fromkeys(ones, 1) | told["constants"]
    aligned = {
        (kernel.arg_names.index(name),): [["tt.divisibility", 16]]
        for name, arg in told["args"].items() if arg["aligned"] and name in special
    }  # fmt: skip
    signature |= dict.fromkeys(told["constants"], "constexpr")
    try:
        target = GPUTarget("cuda", capability, 32)
        made = triton.compile(ASTSource(kernel, signature, constants, aligned), target, told["options"])
    except Exception as error:  # noqa: BLE001  of any stage of another's compiler
        return f"{told['name']} for {capability}: {type(error).__name__}: {error}"
    return "" if made.asm["cubin"] else f"{told['name']} for {capability}: no machine code"


if __name__ == "__main__":
    jobs = [(told, capability) for told in json.load(sys.stdin) for capability in list_capabilities(told)]
    with ThreadPoolExecutor(2) as threads:
        problems = [problem for problem in threads.map(compile_launch, *zip(*jobs, strict=True)) if problem]
    sys.stdout.write("\n".join(problems))
    sys.exit(bool(problems))
