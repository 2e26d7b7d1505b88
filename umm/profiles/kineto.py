"""Profiles of PyTorch in Chrome's trace format, as Kineto writes them.

A kernel is an event of its own; the operator that launched it, with its operands' sizes, has the same
``External id``. In some profiles of 2023 that id is the correlation, and the operator the innermost one in
which the launch of that correlation began. NCCL's kernels carry their bytes, type and group themselves since
PyTorch 2.3.

Source: pytorch/kineto, libkineto/src/output_json.cpp; torch/csrc/distributed/c10d/ParamCommsUtils.hpp.
"""

import math
import re
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from umm.errors import InputError
from umm.numbers import real_in, whole_in
from umm.profiles.kernel import COLLECTIVES, MULTIPLY, Kernel, Profile, kind_of, spoken

KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of what runs on a device; old versions capitalise them."""
BYTES = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "bfloat16": 2, "int": 4,
    "int32": 4, "long": 8, "int64": 8, "byte": 1, "char": 1, "uint8": 1, "int8": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "short": 2, "int16": 2, "uint16": 2, "uint32": 4, "uint64": 8, "complexfloat": 8, "complex64": 8,
    "complexdouble": 16, "complex128": 16,
}  # fmt: skip
"""Bytes of an element by the names that c10d gives types, in lower case."""
ID = "External id"


def is_chrome(content: object) -> bool:
    """Whether a JSON value is a trace of Chrome's."""
    events = content.get("traceEvents") if isinstance(content, Mapping) else content
    return isinstance(events, list) and all(isinstance(x, Mapping) for x in events[:8])


def profile_of(content: Any) -> Profile:
    """Return the kernels of the first device of a trace; InputError if no kernels are in it.

    Args:
        content: The JSON: an object with ``traceEvents``, or the list of events alone.
    """
    events = content["traceEvents"] if isinstance(content, Mapping) else content
    complete = [x for x in events if isinstance(x, Mapping) and x.get("ph") == "X"]
    kernel_events = [x for x in complete if _category(x) in KERNELS]
    if not kernel_events:
        raise InputError(
            "no kernels are in the profile; record it with activities=[ProfilerActivity.CPU, "
            "ProfilerActivity.CUDA] (torch.profiler), and record_shapes=True for the sizes of multiplies"
        )
    by_pid = _by_pid(kernel_events)
    device, devices = _device(kernel_events, by_pid)
    chosen = [x for x in kernel_events if _device_of(x, by_pid) == device]
    process = str(chosen[0].get("pid")).rpartition(" ")[0]
    if by_pid and process:  # "[TP00] 0" of a merged file, whose other ranks have the same ids
        complete = [x for x in complete if str(x.get("pid")).startswith(f"{process} ")]
    # The innermost operator of each external id, with the sizes of its operands.
    operators: dict[str, tuple[str, Any]] = {}
    for event in complete:
        args = _args(event)
        if ID in args and _category(event) in ("cpu_op", "operator", "user_annotation"):
            sizes = args.get("Input Dims", args.get("Input dims"))
            operators[str(args[ID])] = str(event.get("name", "")), sizes
    operators |= _launching(complete)
    kernels = [_kernel(device, x, operators) for x in chosen]
    marks, launched = _marks(complete, device, by_pid)
    # A host that marks the steps runs ahead of its device: a kernel belongs to the step that launched it.
    launches = _launches(complete) if launched else {}
    moments = [
        launches.get(str(_args(x).get("correlation")), k.start) for x, k in zip(chosen, kernels, strict=True)
    ]
    # Warm-up and what is cut at either end belong to no step.
    starts = [start for start, _ in marks]
    places = [bisect(starts, x) - 1 for x in moments]
    inside = [
        kernel
        for kernel, at, step in zip(kernels, moments, places, strict=True)
        if step >= 0 and at < marks[step][1]
    ]
    kernels, marks = (inside, marks) if inside else (kernels, ())
    if marks and launched:
        *before, (start, end) = marks
        marks = (*before, (start, max(end, *(x.start + x.seconds for x in kernels))))
    # A file of several devices was merged of those of several processes, of which it names one at most.
    job = content.get("distributedInfo") if isinstance(content, Mapping) and devices == 1 else None
    rank, ranks = (
        whole_in(str(job.get(x))) if isinstance(job, Mapping) else None for x in ("rank", "world_size")
    )
    steps = max(1, len(marks))
    return Profile(tuple(_joined(kernels)), steps, devices, marks=marks, rank=rank, ranks=ranks)


def _joined(kernels: list[Kernel]) -> list[Kernel]:
    """Return kernels by their starts; one that sums the parts of a multiply split along k is of its call."""
    last: dict[tuple[str, str], int] = {}
    rows: list[Kernel] = []
    for one in sorted(kernels, key=lambda x: x.start):
        before = rows[last[one.lane]] if one.lane in last else None
        if (
            before
            and "splitkreduce" in one.name.lower()
            and (before.kind, before.shape) == (one.kind, one.shape)
        ):
            rows[last[one.lane]] = before._replace(seconds=before.seconds + one.seconds)
            continue
        last[one.lane] = len(rows)
        rows.append(one)
    return rows


def _by_pid(events: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether kernels of each process id are of one device.

    Kineto writes the device there too. Tools that merge the files of ranks change it, and leave the number
    that each rank's process has for its device in the arguments.
    """
    devices: dict[str, set[str]] = {}
    for event in events:
        devices.setdefault(str(event.get("pid", "")), set()).add(_device_of(event, False))
    return "" not in devices and all(len(x) == 1 for x in devices.values())


def _device(events: Sequence[Mapping[str, Any]], by_pid: bool) -> tuple[str, int]:
    """Return the first device with at least half as much kernel time as the busiest, and the devices' number.

    Other processes of a host leave a stray kernel or copy on its first device.
    """
    busy: dict[str, float] = {}
    for event in events:
        device = _device_of(event, by_pid)
        took = max(0.0, _number(event, "dur")) if _category(event) == "kernel" else 0.0
        busy[device] = busy.get(device, 0.0) + took
    most = max(busy.values())
    # Names are numbers as texts: 9 comes before 10.
    return min((x for x, took in busy.items() if took >= most / 2), key=lambda x: (len(x), x)), len(busy)


def _number(event: Mapping[str, Any], name: str, default: float = 0.0) -> float:
    """Return a number of an event; some writers put numbers in quotes."""
    value = event.get(name, default)
    if isinstance(value, str):
        value = real_in(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2.0**1000:
        raise InputError(f"{name} of an event of the profile is no number")
    return float(value)


def _category(event: Mapping[str, Any]) -> str:
    return str(event.get("cat", "")).lower()


def _args(event: Mapping[str, Any]) -> Mapping[str, Any]:
    args = event.get("args")
    return args if isinstance(args, Mapping) else {}


def _device_of(event: Mapping[str, Any], by_pid: bool) -> str:
    pid = str(event.get("pid", ""))
    return pid if by_pid else str(_args(event).get("device", pid))


def _launching(events: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, Any]]:
    """Return the innermost operator of each launch whose external id is its correlation."""
    # Operators of a thread nest, so that the last one begun before a launch and not yet ended is the
    # innermost.
    threads: dict[tuple[str, str], list[tuple[float, bool, Mapping[str, Any]]]] = {}
    for event in events:
        category, args = _category(event), _args(event)
        launch = category in ("cuda_runtime", "cuda_driver") and "correlation" in args
        if (launch and args.get(ID) == args["correlation"]) or category == "cpu_op":
            thread = str(event.get("pid")), str(event.get("tid"))
            threads.setdefault(thread, []).append((_number(event, "ts"), launch, event))
    known: dict[str, tuple[str, Any]] = {}
    for rows in threads.values():
        open_ones: list[tuple[float, Mapping[str, Any]]] = []
        for start, launch, event in sorted(rows, key=lambda x: x[:2]):
            while open_ones and open_ones[-1][0] < start:
                open_ones.pop()
            if not launch:
                open_ones.append((start + _number(event, "dur"), event))
            elif open_ones:
                operator = open_ones[-1][1]
                sizes = _args(operator).get("Input Dims")
                known[str(_args(event)[ID])] = str(operator.get("name", "")), sizes
    return known


def _launches(events: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return when the host launched each correlation, in seconds; none that two processes have."""
    known: dict[str, dict[str, float]] = {}
    for event in events:
        if _category(event).endswith(("_runtime", "_driver")) and "correlation" in _args(event):
            moments = known.setdefault(str(_args(event)["correlation"]), {})
            # A call of the runtime may contain one of the driver with the same correlation.
            moments.setdefault(str(event.get("pid")), _number(event, "ts") / 1e6)
    return {x: at for x, moments in known.items() if len(moments) == 1 for at in moments.values()}


def _marks(
    events: Iterable[Mapping[str, Any]], device: str, by_pid: bool
) -> tuple[tuple[tuple[float, float], ...], bool]:
    """Return start and end of each marked step, and whether they are the host's.

    A step is as this device marks it, else another one, else the host. A device marks it for each of its
    streams; it runs from the first one's start until the next step's, or the last one's end.
    """
    marks: dict[str, tuple[int, str, float, float]] = {}
    for event in events:
        name = str(event.get("name", ""))
        if name.startswith("ProfilerStep#"):
            start, lane = _number(event, "ts") / 1e6, _device_of(event, by_pid)
            end = start + _number(event, "dur") / 1e6
            order = 0
            if _category(event) == "gpu_user_annotation":
                order = 2 if lane == device else 1
            before = marks.get(name)
            if before is None or order > before[0]:
                marks[name] = order, lane, start, end
            elif order == before[0] > 0 and lane == before[1]:
                marks[name] = order, lane, min(start, before[2]), max(end, before[3])
    rows = sorted(
        (start, end, whole_in(name.partition("#")[2])) for name, (_, _, start, end) in marks.items()
    )
    steps = []
    for (start, end, number), (after, _, next_number) in zip(
        rows, [*rows[1:], (math.inf, 0.0, None)], strict=False
    ):
        follows = number is not None and next_number == number + 1
        steps.append((start, after if follows else min(end, after)))
    return tuple(steps), all(x[0] == 0 for x in marks.values())


def _kernel(device: str, event: Mapping[str, Any], operators: Mapping[str, tuple[str, Any]]) -> Kernel:
    """Return an event as a kernel."""
    args, name = _args(event), str(event.get("name", ""))
    seconds, start = _number(event, "dur") / 1e6, _number(event, "ts") / 1e6
    if seconds < 0:
        raise InputError(f"an event of the profile takes {seconds:g} s")
    operator, sizes = operators.get(str(args.get(ID)), ("", None))
    kind = spoken(str(args.get("Collective name", ""))) or kind_of(name, operator)
    lane = device, str(args.get("stream", event.get("tid", "")))
    plain = Kernel(kind, name, seconds, start=start, lane=lane)
    if kind in COLLECTIVES:
        ranks = int(_number(args, "Group size"))
        counted = [_number(args, f"{x} msg nelems") for x in ("In", "Out")]
        width = BYTES.get(str(args.get("dtype", "")).rpartition("::")[2].lower(), 0)
        elements = counted[0] if kind == "all-to-all" else max(counted)
        return plain._replace(ranks=ranks, nbytes=int(elements * width), group=_group(args, ranks))
    return plain._replace(shape=multiplied(operator, sizes)) if kind == MULTIPLY else plain


def _group(args: Mapping[str, Any], ranks: int) -> tuple[int, ...]:
    """Return the ranks of a group; () where they are not all in the profile, which cuts long lists."""
    words = str(args.get("Process Group Ranks", "")).strip("[] ").split(",")
    group = [whole_in(x.strip()) for x in words]
    return tuple(x for x in group if x is not None) if len(group) == ranks and None not in group else ()


def multiplied(operator: str, sizes: Any) -> tuple[int, ...]:
    """Return m, n and k of a multiply, its members before them; () where the sizes do not say.

    >>> multiplied("aten::addmm", [[1024], [8192, 4096], [4096, 1024], [], []])
    (8192, 1024, 4096)
    >>> multiplied("aten::bmm", [[32, 128, 64], [32, 64, 128]])
    (32, 128, 128, 64)
    >>> multiplied("aten::baddbmm", [[8, 512, 512], [8, 512, 64], [8, 64, 512]])
    (8, 512, 512, 64)
    >>> multiplied("aten::linear", [[2, 4096, 8192], [1024, 8192], []])
    (8192, 1024, 8192)
    """
    if not isinstance(sizes, list):
        return ()
    if re.search(r"addmm|addbmm", operator):  # the first operand is added, and may be a matrix itself
        sizes = sizes[1:]
    shapes = [
        tuple(x)
        for x in sizes
        if isinstance(x, list) and len(x) > 1 and all(type(y) is int and y > 0 for y in x)
    ]
    if len(shapes) < 2:
        return ()
    a, b = shapes[:2]
    if operator.endswith("linear"):
        return (prod(a[:-1]), b[0], a[-1]) if a[-1] == b[-1] else ()
    if len(a) != len(b):
        return (prod(a[:-1]), b[-1], a[-1]) if len(b) == 2 and a[-1] == b[0] else ()
    if a[:-2] != b[:-2] or a[-1] != b[-2]:
        return ()
    members = prod(a[:-2])
    return ((members,) if members > 1 else ()) + (a[-2], b[-1], a[-1])
