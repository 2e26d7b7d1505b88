"""The raced cases: sizes and layouts in float64, and its form in each library. Imports no library of umm."""


def cases(ranks, edge=2048):
    """Every case on so many ranks: its name, sizes, layouts as text, and others' words for the same.

    Attributes of a case: ``layouts`` for umm; ``grid`` and ``blocks`` for ScaLAPACK; ``placements`` and
    ``mesh`` for DTensor and ``chunks`` for dask where they can say it; ``aligned`` where no rank needs more
    of A and B than a panel at a time.
    """
    grid = [1, ranks] if ranks < 4 else [2, ranks // 2]
    text = "x".join(map(str, grid))
    flat_mesh, mesh = [ranks], grid

    def of(name, m, n, k, layouts, process_grid, blocks, placements=None, mesh=None, aligned=True):
        return {
            "name": name, "m": m, "n": n, "k": k, "layouts": layouts, "grid": process_grid, "blocks": blocks,
            "placements": placements, "mesh": mesh, "aligned": aligned,
        }  # fmt: skip

    def blocks(sizes, process_grid):
        return [-(-size // parts) for size, parts in zip(sizes, process_grid, strict=True)]

    result = []
    n, long = edge, 32 * edge
    square = [blocks((n, n), grid)] * 3
    result.append(of("square", n, n, n, [f"2d:{text}"] * 3, grid, square, ["01", "01", "01"], mesh))
    rows = [ranks, 1]
    result.append(
        of("square rows", n, n, n, ["row"] * 3, rows, [blocks((n, n), rows)] * 3, ["0"] * 3, flat_mesh)
    )
    tall = [blocks(x, rows) for x in ((long, 256), (256, 256), (long, 256))]
    result.append(of("tall", long, 256, 256, ["row"] * 3, rows, tall, ["0"] * 3, flat_mesh))
    cols = [1, ranks]
    flat = [blocks(x, cols) for x in ((256, 256), (256, long), (256, long))]
    result.append(of("flat", 256, long, 256, ["col"] * 3, cols, flat, ["1"] * 3, flat_mesh))
    cyclic = f"cyclic:64x64:{text}"
    result.append(of("block-cyclic", n, n, n, [cyclic] * 3, grid, [[64, 64]] * 3))
    uneven = [f"cyclic:{nb}:{text}" for nb in ("96x80", "80x72", "96x72")]
    result.append(of("uneven", n - 271, n - 117, n + 63, uneven, grid, [[96, 80], [80, 72], [96, 72]]))
    return result
