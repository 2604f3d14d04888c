"""The tolerance policies of the field: field.toml has their numbers, `read_policies` applies them to an output."""

from gonogo.policies._policy import Numbers, Policy, Twin, load_policies, make_policy, read_policy_file
from gonogo.policies.elementwise import rmse
from gonogo.policies.readings import Unscaled, read_policies, read_policy, read_unscaled

__all__ = [
    "Numbers",
    "Policy",
    "Twin",
    "Unscaled",
    "load_policies",
    "make_policy",
    "read_policies",
    "read_policy",
    "read_policy_file",
    "read_unscaled",
    "rmse",
]
