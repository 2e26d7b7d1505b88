"""Profiles as torch.profiler writes them, made of kernels: the documented format, with made-up names.

Names and arguments follow Kineto's output_json.cpp and the events that PyTorch's documentation and issues
show; kernels of public profiles are in tests/profiles/test_public_traces.py.
"""

import gzip
import json

from umm.profiles.kernel import ATTENTION, COLLECTIVES, MAP, MULTIPLY

NCCL = {
    "all-gather": ("AllGather_RING_LL", "_allgather_base"),
    "reduce-scatter": ("ReduceScatter_Sum_bf16_RING_LL", "_reduce_scatter_base"),
    "all-reduce": ("AllReduce_Sum_bf16_TREE_LL", "allreduce"),
    "all-to-all": ("SendRecv", "all_to_allv"),
}


def kineto(kernels, factor=lambda kernel: 1.0, steps=1, gap=0.0):
    """A trace of some steps of a stream; a kernel of many calls has as many events a step.

    Args:
        factor: By which each kernel takes longer than predicted.
        gap: Seconds between two kernels.
    """
    events, at, ident = [], 1000.0, 0
    for step in range(steps):
        begin = at
        for one in kernels:
            calls = max(1, round(one.calls))
            for _ in range(calls):
                ident += 1
                took = one.seconds * one.calls / calls * factor(one) * 1e6
                events += _events(one, ident, at, took)
                at += took + gap * 1e6
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, at - begin, {}))
        at += 5.0
    first = {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}
    devices = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]
    return {"schemaVersion": 1, "deviceProperties": devices, "traceEvents": [first, *events]}


def event(category, name, ts, dur, args, pid=0, tid=7):
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def _events(one, ident, at, took):
    args = {"device": 0, "stream": 7, "External id": ident, "grid": [132, 1, 1], "block": [384, 1, 1]}
    operator, sizes, name = "aten::mul", [[8192, 8192], [8192, 8192]], "vectorized_elementwise_kernel<4, …>"
    if one.kind == MULTIPLY:
        *members, m, n, k = one.shape
        operator = "aten::bmm" if members else "aten::mm"
        sizes = [[*members, m, k], [*members, k, n]]
        name = "nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_NNT"
    elif one.kind == ATTENTION:
        operator, name = (
            "aten::_scaled_dot_product_flash_attention",
            "void flash_fwd_kernel<Flash_fwd_kernel_traits>",
        )
    elif one.kind in COLLECTIVES:
        kernel, spoken = NCCL[one.kind]
        name, operator = f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)", "record_param_comms"
        full = one.nbytes // 2
        part = full // max(1, one.ranks)
        sent, received = {"all-gather": (part, full), "reduce-scatter": (full, part)}.get(
            one.kind, (full, full)
        )
        args |= {
            "Collective name": spoken, "In msg nelems": sent, "Out msg nelems": received, "dtype": "BFloat16",
            "Group size": one.ranks, "Process Group Name": "1", "stream": 20,
            "Process Group Ranks": str(list(one.group)),
        }  # fmt: skip
    else:
        assert one.kind == MAP
    host = event("cpu_op", operator, at - 20, 9.0, {"External id": ident, "Input Dims": sizes}, 4242, 4242)
    return [host, event("kernel", name, at, took, args)]


def written(content, path):
    """Write a trace as JSON, packed where its name ends so; return the path."""
    text = json.dumps(content).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path
