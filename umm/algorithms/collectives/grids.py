"""Where ranks lie on a machine: the lines of a grid they fill, and the nodes they are in."""

from collections.abc import Sequence
from itertools import product
from math import prod

from umm.machines import Machine

Cell = tuple[int, ...]


def cell_of(shape: Sequence[int], device: int) -> Cell:
    """Return the indices of a device along the axes of a grid, the last axis fastest.

    >>> cell_of((2, 3), 4)
    (1, 1)
    """
    cell = []
    for side in reversed(shape):
        device, x = divmod(device, side)
        cell.append(x)
    return tuple(reversed(cell))


def box_of(machine: Machine, devices: Sequence[int]) -> list[list[int]] | None:
    """Return for each axis of a machine's grid the indices that devices fill together, each once.

    Returns:
        None if the machine's devices lie on no grid, or these are not all of a box.
    """
    shape = machine.fabric.shape
    if not shape or len(set(devices)) < len(devices):
        return None
    cells = [cell_of(shape, device) for device in devices]
    box = [sorted({cell[axis] for cell in cells}) for axis in range(len(shape))]
    return box if prod(map(len, box)) == len(cells) else None


def lines_of(machine: Machine, ranks: Sequence[int], total: int) -> list[list[list[int]]]:
    """Return the lines of ranks along each axis of a grid that they extend along.

    Args:
        machine: Whose grid.
        ranks: Which ranks.
        total: Ranks of the whole schedule, which decides the device of each.

    Returns:
        For each such axis the lines along it; [] if the ranks do not fill a box.
    """
    devices = [machine.device_of(rank, total) for rank in ranks]
    box = box_of(machine, devices) or []
    shape = machine.fabric.shape
    rank_of = {cell_of(shape, device): rank for device, rank in zip(devices, ranks, strict=True)}
    found = []
    for axis, side in enumerate(box):
        if len(side) > 1:
            starts = product(*box[:axis], side[:1], *box[axis + 1 :])
            found.append([[rank_of[*cell[:axis], x, *cell[axis + 1 :]] for x in side] for cell in starts])
    return found


def cycle(sides: Sequence[int]) -> list[Cell]:
    """Return the cells of a box so that each is beside the one before, and the last beside the first.

    Where there is no such cycle (all sides odd, or only one is longer than 1), only the last and the first
    are apart.

    >>> cycle([2, 3])
    [(0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (1, 0)]
    """
    path: list[Cell] = [()]
    for side in reversed(sides[1:]):  # through the other axes, to and fro
        path = [(x, *cell) for x in range(side) for cell in (path if x % 2 == 0 else path[::-1])]
    rows, cols = sides[0], len(path)
    if rows % 2 and cols % 2 == 0:
        return [(x, *path[y]) for y, x in _plane(cols, rows)]
    return [(x, *path[y]) for x, y in _plane(rows, cols)]


def _plane(rows: int, cols: int) -> list[tuple[int, int]]:
    """Return the cells of a plane: to and fro along its rows, but for the first column, which leads back."""
    back = rows % 2 == 0 and cols > 1
    found = [(x, y) for x in range(rows) for y in range(int(back), cols)[:: 1 if x % 2 == 0 else -1]]
    return [(0, 0), *found, *((x, 0) for x in range(rows - 1, 0, -1))] if back else found


def nodes_of(machine: Machine, ranks: Sequence[int], total: int) -> list[list[int]]:
    """Return ranks by the group of nearer devices they are in, such as a node, in the order of devices."""
    groups: dict[int, list[int]] = {}
    for rank in ranks:
        groups.setdefault(machine.device_of(rank, total) // machine.fabric.near, []).append(rank)
    return [groups[number] for number in sorted(groups)]
