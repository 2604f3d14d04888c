"""The tolerance policies of the field: field.toml has their numbers, `read_policies` applies them to an output."""

from gonogo.policies._policy import Policy, Twin, load_policies
from gonogo.policies.elementwise import rmse
from gonogo.policies.readings import read_policies

__all__ = ["Policy", "Twin", "load_policies", "read_policies", "rmse"]
