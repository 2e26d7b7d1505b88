"""The two things that published measurements of one multiply are made of: a local GEMM and an all-gather."""

import umm
from umm.cost import gemm_seconds
from umm.dtypes import itemsize
from umm.machines import Machine


def gemm(machine: Machine, dtype: str, m: int, n: int, k: int) -> float:
    """Return the seconds of one local multiply, C of the operands' type."""
    return float(gemm_seconds(machine, dtype, m, n, k, itemsize(dtype)))


def copies(machine: Machine, nbytes: float) -> float:
    """Return the seconds a device takes to receive bytes from its peers, its own port the narrowest link."""
    route = list(machine.route(0, 1))
    latency = float(machine.link_latency[route].sum())
    return latency + nbytes / float(machine.link_bandwidth[route].min())


def all_gather(machine: Machine, shard: float, devices: int) -> float:
    """Return the seconds an all-gather of one shard a device takes."""
    return copies(machine, (devices - 1) * shard)


def mlp1(machine: Machine, m: int, columns: bool) -> float:
    """Return the seconds DTensor takes for MLP-1 on eight devices, one thing after the other.

    With column layouts it gathers A where that is fewer bytes than moving B, m k < k n / p; else, and always
    with row layouts, an all-to-all lays one operand along k, and the products are reduce-scattered.
    """
    n, k, p, word = 49152, 12288, 8, 4
    others = (p - 1) / p
    if columns and m * k < k * n / p:
        return copies(machine, others * m * k * word) + gemm(machine, "float32", m, n // p, k)
    moved = k * n if columns else m * k
    all_to_all = copies(machine, others * moved * word / p)
    return all_to_all + gemm(machine, "float32", m, n, k // p) + copies(machine, others * m * n * word)


def h100() -> Machine:
    """Return the shipped machine, not a user's of the same name."""
    from umm.machines.files import shipped_folder

    return umm.machine(shipped_folder() / "h100-8.toml")


def pvc() -> Machine:
    """Return the recommended machine of PVC."""
    from umm.machines.files import shipped_folder

    return umm.machine(shipped_folder() / "pvc-12-planes.toml")
