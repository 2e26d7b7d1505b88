"""What the tiles of a GEMM kernel make of a shape: whole waves of them, a ramp over k, and split k."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from umm.arrays import Floats


@dataclass(frozen=True)
class Tiles:
    """How a GEMM kernel cuts its work among the units of a device, such as the SMs of a GPU.

    A unit computes one tile of C at a time, over all of k or over one part of it. Tiles at an edge cost as
    much as whole ones, and units without a tile wait for the last wave.

    Attributes:
        rows: Rows of a tile of C; ``cols`` its columns.
        cols: See rows.
        units: Tiles that are computed at once.
        ramp: What beginning and ending a tile takes, in steps along k.
        most_splits: Parts that k may be cut into; the kernel takes the power of two that is fastest.
    """

    rows: int
    cols: int
    units: int
    ramp: int
    most_splits: int = 1

    def share(self, m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike, batch: npt.ArrayLike = 1) -> Floats:
        """Return the share that shapes reach of what endless multiplies reach.

        Args:
            m: Rows of C; all broadcast against each other.
            n: Columns of C.
            k: Length of the sums.
            batch: Multiplies of this shape that run together.

        One tile on each of 4 units does half of what it could where the ramp is as long as k; a fifth tile
        takes a second wave; two tiles with k in halves keep 4 units busy:

        >>> tiles = Tiles(rows=64, cols=64, units=4, ramp=256, most_splits=2)
        >>> tiles.share([128, 320, 64], [128, 64, 128], [256, 256, 768]).round(3).tolist()
        [0.5, 0.312, 0.6]
        """
        m, n, k, batch = (np.asarray(x, dtype=np.float64) for x in (m, n, k, batch))
        tiles = np.ceil(m / self.rows) * np.ceil(n / self.cols) * batch
        best = np.full(np.broadcast_shapes(tiles.shape, k.shape), np.inf)
        splits = 1
        while splits <= self.most_splits:
            np.minimum(best, np.ceil(tiles * splits / self.units) * (k / splits + self.ramp), out=best)
            splits *= 2
        return np.asarray(batch * m * n * k / (best * (self.rows * self.cols * self.units)))

    def most(self, k: npt.ArrayLike) -> Floats:
        """Return what no multiply of this k, nor one that is cut out of it, goes above."""
        k = np.asarray(k, dtype=np.float64)
        return np.asarray(k / (k + self.ramp))
