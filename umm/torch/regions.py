"""Regions of a module without gradients or with casts, which torch.export puts into graphs of their own."""

from operator import attrgetter
from typing import Any


def inlined(module: Any) -> Any:
    """Return a graph with the regions of torch.no_grad and torch.autocast in it.

    Results of a region without gradients are detached.
    """
    import torch

    graph = module.graph
    regions = [x for x in graph.nodes if x.op == "call_function" and "wrap_with_" in str(x.target)]
    for node in regions:
        part = next((x for x in node.args if getattr(x, "op", "") == "get_attr"), None)
        if part is None:
            continue
        region = attrgetter(part.target)(module)
        given = node.args[node.args.index(part) + 1 :]
        inputs = [x for x in region.graph.nodes if x.op == "placeholder"]
        inlined(region)
        # Parts of a condition or a loop.
        for x in (y for y in region.graph.nodes if y.op == "get_attr" and y.users):
            name = f"{part.target}_{x.target}".replace(".", "_")
            setattr(module, name, attrgetter(x.target)(region))
            x.target = name
        with graph.inserting_before(node):
            results = graph.graph_copy(region.graph, dict(zip(inputs, given, strict=True)))
            results = results if isinstance(results, (list, tuple)) else (results,)
            if "set_grad_enabled" in str(node.target) and node.args[0] is False:
                results = [_detached(torch, graph, x) for x in results]
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
        graph.erase_node(node)
    return graph


def _detached(torch: Any, graph: Any, x: Any) -> Any:
    node = graph.call_function(torch.ops.aten.detach.default, (x,))
    node.meta = dict(x.meta)
    return node
