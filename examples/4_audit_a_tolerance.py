"""Tolerances for a softmax in float16, audited: what is plainly wrong and passes, what is right and fails."""

from gonogo.audit import Audit, Tolerance, audit_tolerance
from gonogo.ops import get_op

OP, DTYPE, CASES = get_op("softmax"), "float16", 4


def audit(atol: float | None = None, rtol: float | None = None, policy: str | None = None) -> Audit:
    """Run probes and the op's own kernels, correct and faulty, on small cases on the CPU."""
    tolerance = Tolerance.make(atol=atol, rtol=rtol, policy=policy)
    (found,) = audit_tolerance(tolerance, [OP], [DTYPE], None, cases=CASES)
    return found


def tell(found: Audit) -> None:
    score, manifest = found.score, found.score.bins["manifest"]
    print(f"{found.tolerance}: {found.finding}")
    for probe in found.probes.values():
        print(f"  {probe.name:<9} passes {probe.passed} of {probe.cases} cases")
    print(f"  correct kernels that fail  {score.false_positives} of {score.control_cases}")
    print(f"  faulty kernels that fail   {manifest.flagged} of {manifest.cases} where the fault shows")


if __name__ == "__main__":
    tell(audit(atol=1e-1, rtol=1e-1))  # loose: a constant passes
    tell(audit(atol=0.0, rtol=1e-4))  # tight: float16 itself rounds by up to 4.9e-4
    tell(audit(policy="torch_testing"))  # assert_close's defaults
