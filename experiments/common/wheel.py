"""The tables of AIConfigurator's wheel, which experiments read without asking a network."""

from importlib.util import find_spec
from pathlib import Path

from umm.errors import InputError
from umm.machines.drafts.measured import AIC


def wheel() -> Path:
    """Return the folder of the installed wheel's tables, a folder a system; InputError if there is none."""
    spec = find_spec(AIC)
    if spec is None or not spec.submodule_search_locations:
        raise InputError("experiments read aiconfigurator-core's tables: pip install 'umm-sim[aic]'")
    return Path(next(iter(spec.submodule_search_locations))) / "systems" / "data"
