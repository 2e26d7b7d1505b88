"""A machine with another number of devices, for experiments in scale."""

from umm.machines.build import build
from umm.machines.machine import Machine


def resized(machine: Machine, devices: int) -> Machine:
    """Return the same machine with another number of devices.

    Raises:
        MachineError: The fabric's shape is fixed (mesh, torus, fat tree, explicit links), or nodes
            would not be whole.
    """
    count = {"value": devices, "source": f"resized from {machine.device_count}", "assumed": True}
    fixed = ("count", "names", "default_ranks")
    kept = {key: item for key, item in machine.document["devices"].items() if key not in fixed}
    content = {**machine.document, "devices": {"count": count, **kept}}
    return build(content, machine.source_path, f"{machine.name}:{devices}")
