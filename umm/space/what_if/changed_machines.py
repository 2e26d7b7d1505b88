"""Machines with one number changed: what if the links were twice as fast, or the peak half as high."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from umm.machines import Machine
from umm.space.bounds.link_times import link_times
from umm.units import format_bandwidth, format_seconds

MOST_BANDWIDTHS = 4


@dataclass(frozen=True)
class Knob:
    """A number of a machine that can be scaled.

    Attributes:
        name: ``link bandwidth``, ``latency`` (links' and GEMM launches'), ``peak``, ``memory bandwidth``.
        value: The number now, in bytes/s, seconds or flop/s.
        bandwidths: Bandwidths of the links that are scaled.
    """

    name: str
    value: float
    bandwidths: tuple[float, ...] = ()

    def at(self, factor: float) -> str:
        """Return the number times a factor, with its unit."""
        value = self.value * factor
        if self.name == "latency":
            return format_seconds(value)
        return f"{value / 1e12:.4g} Tflop/s" if self.name == "peak" else format_bandwidth(value)


def knobs(machine: Machine, ranks: int, dtype: str) -> list[Knob]:
    """Return the numbers of a machine that can change a choice, each bandwidth of link by itself.

    Links of more than a few bandwidths, as measured ones have, are scaled together and go by their median.
    """
    links = link_times(machine, ranks)
    found = []
    if len(links.used):
        bandwidths = tuple(np.unique(machine.link_bandwidth[links.used]).tolist())
        if len(bandwidths) > MOST_BANDWIDTHS:
            found.append(Knob("link bandwidth", float(np.median(bandwidths)), bandwidths))
        else:
            found += [Knob("link bandwidth", one, (one,)) for one in bandwidths]
        found.append(Knob("latency", float(links.latency.max())))
    found.append(Knob("peak", machine.peak(dtype)))
    found.append(Knob("memory bandwidth", machine.memory_bandwidth))
    return found


def changed(machine: Machine, knob: Knob, factor: float) -> Machine:
    """Return a machine with one number times a factor; it has a name and a hash of its own."""
    if factor == 1.0:
        return machine
    bandwidth = machine.link_bandwidth.copy()
    changes: dict[str, object] = {"link_bandwidth": bandwidth}
    if knob.name == "link bandwidth":
        bandwidth[np.isin(bandwidth, knob.bandwidths)] *= factor
    elif knob.name == "latency":
        changes |= {"link_latency": machine.link_latency * factor, "launch_s": machine.launch_s * factor}
    elif knob.name == "peak":
        changes |= {"peaks": {dtype: rate * factor for dtype, rate in machine.peaks.items()}}
    else:
        bandwidth[len(bandwidth) - machine.device_count :] *= factor  # ranks on one device copy through it
        changes |= {"memory_bandwidth": machine.memory_bandwidth * factor}
    text = f"{knob.name} {knob.at(1.0)} x{factor!r}"
    sha = hashlib.sha256(f"{machine.sha} {text}".encode()).hexdigest()
    return replace(machine, name=f"{machine.name}, {text}", sha=sha, **changes)  # type: ignore[arg-type]
