"""A limit → what is to be said of it where it stands far above what its controls read, or above the package's own.

No rule makes such a limit: somebody changed it by hand, or a control it was made from is not what it was.
"""

from __future__ import annotations

from gonogo.errors import InputError
from gonogo.limits.limit import Limit
from gonogo.limits.rules import rule

FAR = 4.0
"""How many times a number is far above it. Rules take up to 3 times what controls read, or their floor; limits made
from any one of the committed runs are at most those of all."""


def tell_loose(limit: Limit, package: Limit | None) -> str | None:
    """Above what a limit stands, in words; None where it is as a rule makes it. `package` is the package's own."""
    told = []
    if limit.worst is not None and limit.value > max(FAR * limit.worst, _find_highest(limit)):
        told.append(f"{limit.worst:.4g}, the most that its controls read")
    if package is not None and limit.value > FAR * package.value:
        told.append(f"the package's own, {package.value:.4g}")
    return f"far above {', and '.join(told)}" if told else None


def _find_highest(limit: Limit) -> float:
    """What its rule makes of the worst reading; 0 where this version has no such rule."""
    try:
        return rule(limit.rule, **limit.parameters).settle(limit.worst or 0.0)
    except InputError:
        return 0.0
