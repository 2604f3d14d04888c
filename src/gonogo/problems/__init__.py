"""A benchmark's problem and its solutions, as they are → gonogo's verdict beside the benchmark's own."""

from __future__ import annotations

from gonogo.problems.finding import find_problems
from gonogo.problems.problem import Options, Problem, Solution

__all__ = ["Options", "Problem", "Solution", "find_problems"]
