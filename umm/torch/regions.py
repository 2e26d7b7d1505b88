"""Regions of a module without gradients or with casts, which torch.export puts into graphs of their own."""

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
        region = inner_module(module, part.target)
        given = node.args[node.args.index(part) + 1 :]
        inputs = [x for x in region.graph.nodes if x.op == "placeholder"]
        inlined(region)
        for x in (
            x for x in region.graph.nodes if x.op == "get_attr" and x.users
        ):  # of a condition or a loop
            name = f"{part.target}_{x.target}".replace(".", "_")
            setattr(module, name, inner_module(region, x.target))
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


def inner_module(module: Any, path: str) -> Any:
    """Return a module inside another by its path."""
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _detached(torch: Any, graph: Any, x: Any) -> Any:
    node = graph.call_function(torch.ops.aten.detach.default, (x,))
    node.meta = dict(x.meta)
    return node
