"""A layout in the words of frameworks, from their objects and to them; none is imported unless given."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

from umm.arrays import Ints
from umm.layouts.edges import TileGrid
from umm.layouts.frameworks import dtensor, hpf, jax, scalapack
from umm.layouts.frameworks.dtensor import DTensorLayout
from umm.layouts.frameworks.hpf import HpfLayout
from umm.layouts.frameworks.jax import JaxLayout
from umm.layouts.frameworks.mesh import Parts
from umm.layouts.frameworks.scalapack import ScalapackLayout
from umm.layouts.frameworks.words import matrix_shape


class Spoken(TileGrid):
    """A layout's methods for the words of PyTorch's DTensor, JAX, ScaLAPACK and HPF."""

    process_grid: tuple[int, int]  # rows and columns of the process grid
    places: Ints  # the rank at each place, shape (replicas, process grid rows, process grid columns)

    @classmethod
    @abstractmethod
    def of_parts(cls, parts: Parts, shape: tuple[int, int]) -> Self:
        """Return the layout of a shape that is cut so, with the plainest text that means it."""

    def said_in(self, framework: str) -> DTensorLayout | JaxLayout | ScalapackLayout | HpfLayout:
        """Return this layout in the words of ``dtensor``, ``jax``, ``scalapack`` or ``hpf``.

        LayoutError naming what it cannot say.

        >>> from umm import Layout
        >>> str(Layout.parse("col", (8, 8), ranks=4).said_in("jax"))
        'jax:mesh=x:4;P(None,x)'
        """
        written: dict[str, Callable[..., DTensorLayout | JaxLayout | ScalapackLayout | HpfLayout]] = {
            "dtensor": dtensor.written,
            "jax": jax.written,
            "scalapack": scalapack.written,
            "hpf": hpf.written,
        }
        return written[framework](self, str(self))

    @classmethod
    def from_dtensor(cls, x: Any, placements: Any = None, shape: Sequence[int] | None = None) -> Self:
        """Return a DTensor's layout; LayoutError if it is none of a matrix, such as Partial.

        Args:
            x: A DTensor or a DTensorSpec. Or, with placements and a shape, a ``DeviceMesh``, the lengths of
                its axes as a tuple, or its ranks as nested lists.
            placements: One for each axis of the mesh: real ones, or texts such as ``"Shard(0)"``.

        >>> from umm import Layout
        >>> str(Layout.from_dtensor((2, 4), ["Shard(0)", "Replicate"], (16, 6)))
        'row@4:interleaved'
        """
        mesh = x
        if placements is None:
            mesh, placements, shape = dtensor.of_object(x)
        sizes = matrix_shape(shape)
        return cls.of_parts(dtensor.parts(mesh, placements, sizes), sizes)

    def to_dtensor(self, mesh: Any = None) -> Any:
        """Return the mesh and the placements of this layout; LayoutError naming the part DTensor cannot say.

        Args:
            mesh: A ``DeviceMesh``; None finds one, if possible one along which ranks are counted.

        Returns:
            A :class:`~umm.layouts.frameworks.dtensor.DTensorLayout`; on a mesh the real placements.

        >>> from umm import Layout
        >>> str(Layout.parse("2d@2", (8, 8), ranks=8).to_dtensor())
        'dtensor:mesh=2x2x2;Replicate,Shard(0),Shard(1)'
        """
        result: DTensorLayout = dtensor.written(self, str(self))
        return result if mesh is None else dtensor.written_on(self, str(self), mesh)

    @classmethod
    def from_jax(cls, x: Any, spec: Any = None, shape: Sequence[int] | None = None) -> Self:
        """Return how a JAX array lies.

        LayoutError for what JAX would not shard, such as sizes that do not divide.

        Args:
            x: An array with a ``NamedSharding``; one of these, with a shape; or, with a spec and a shape, a
                ``Mesh`` or the names and lengths of its axes as a dict.
            spec: A ``PartitionSpec``, or what one takes.

        >>> from umm import Layout
        >>> str(Layout.from_jax({"x": 2, "y": 4}, ("y", "x"), (8, 8)))
        '2d:4x2:colmajor'
        """
        mesh = x
        if spec is None:
            mesh, spec, its_shape = jax.of_object(x)
            shape = its_shape if shape is None else shape
        sizes = matrix_shape(shape)
        return cls.of_parts(jax.parts(mesh, spec, sizes), sizes)

    def to_jax(self, mesh: Any = None) -> Any:
        """Return the mesh and the PartitionSpec of this layout; LayoutError naming the part JAX cannot say.

        Args:
            mesh: A ``jax.sharding.Mesh``; None finds one, if possible one along which devices are counted.

        Returns:
            A :class:`~umm.layouts.frameworks.jax.JaxLayout`; on a mesh the real ``NamedSharding``.

        >>> from umm import Layout
        >>> Layout.parse("2d@2", (8, 8), ranks=8).to_jax().partition_spec
        "P('y', 'z')"
        """
        result: JaxLayout | None = jax.written(self, str(self)) if mesh is None else None
        return result if mesh is None else jax.written_on(self, str(self), mesh)

    @classmethod
    def from_scalapack(
        cls, desc: Sequence[int], grid: Sequence[int], order: str | Sequence[int] = "R"
    ) -> Self:
        """Return how a matrix lies that a ScaLAPACK descriptor describes.

        LayoutError for a descriptor of another kind, or one that does not fit the grid.

        Args:
            desc: DTYPE_, CTXT_, M_, N_, MB_, NB_, RSRC_, CSRC_, LLD_.
            grid: Rows and columns of the process grid.
            order: ``R`` or ``C``, as BLACS_GRIDINIT took it, or the ranks along the rows of the grid.

        >>> from umm import Layout
        >>> str(Layout.from_scalapack((1, 0, 1000, 600, 64, 32, 0, 0, 512), (2, 4), "C"))
        'cyclic:64x32:2x4:colmajor'
        """
        parts = scalapack.parts(desc, grid, order)
        return cls.of_parts(parts, (int(parts.row_edges[-1]), int(parts.col_edges[-1])))

    def to_scalapack(self) -> ScalapackLayout:
        """Return the descriptor and the process grid of this layout.

        LayoutError naming what a descriptor cannot say, such as replicas.
        """
        return scalapack.written(self, str(self))

    @classmethod
    def from_hpf(cls, text: str, shape: Sequence[int], ranks: int) -> Self:
        """Return the layout of HPF's words: ``(CYCLIC(64),BLOCK)onto(2,4)``.

        LayoutError if they mean nothing, or not on so many ranks.

        >>> from umm import Layout
        >>> str(Layout.from_hpf("(BLOCK,*)", (10, 6), ranks=4))
        'row'
        """
        sizes = matrix_shape(shape)
        return cls.of_parts(hpf.read(text.removeprefix("hpf:"), sizes, ranks), sizes)

    def to_hpf(self) -> HpfLayout:
        """Return this layout in HPF's words; ``str`` of it, or its ``directives("A")``.

        LayoutError naming what HPF cannot say.
        """
        return hpf.written(self, str(self))
