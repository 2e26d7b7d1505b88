"""Norms as parts of presets: of rows, of each head of queries and keys, or of all heads together."""

from umm.program.writing import Writing


class Norm:
    """out = x / rms(x) · scale, row by row: a pass forward, and one for each gradient, as in torch."""

    fn, how = "rms", dict[str, int]()  # how the names of its functions begin, and their parameters

    def __init__(self, w: Writing, x: str, out: str, scale: str) -> None:
        self.w, self.x, self.scale, self.out = w, x, scale, out
        w.weight(scale, 1, w.shapes[x].cols, "scale")
        if out not in w.shapes:
            w.tensor(out, w.tokens, w.shapes[x].cols, "tokens")
        w.fused_map(out, "rms_norm", x, scale)

    def backward(self, dy: str, dx: str, *more: str) -> None:
        """Write the gradients by the scale and by x, to which another gradient by x may be added."""
        w = self.w
        w.map(dx, f"{self.fn}_norm_grad" + "_add" * bool(more), dy, self.x, self.scale, *more, **self.how)
        w.map(w.gradient(self.scale, "output"), f"{self.fn}_scale_grad", dy, self.x, **self.how)


class LayerNorm:
    """out = (x − mean) / deviation, row by row: SUMMA2.5, equations 7 and 8."""

    def __init__(self, w: Writing, x: str, out: str) -> None:
        self.w, self.out = w, out
        self.sums = [w.tensor(f"{out}.{what}", w.tokens, 1, "statistics") for what in ("sum", "squares")]
        w.map(self.sums[0], "row_sum", x)
        w.map(self.sums[1], "row_sum_squares", x)
        w.map(out, "normalise", x, *self.sums)

    def backward(self, dy: str, dx: str) -> None:
        """Write the gradient by x, given that by the result; dx may be dy."""
        w = self.w
        dot, total, rstd = (
            w.tensor(f"{self.out}.{what}", w.tokens, 1, "statistics") for what in ("dot", "total", "rstd")
        )
        w.map(dot, "row_dot", dy, self.out)
        w.map(total, "row_sum", dy)
        w.map(rstd, "rstd", *self.sums, columns=w.shapes[self.out].cols)
        w.map(dx, "norm_grad", dy, self.out, dot)
        w.map(dx, "centre", dx, total)
        w.map(dx, "mul_rows", dx, rstd)


class HeadNorm(Norm):
    """out = x / rms(x) · scale within the columns of each head: Henry et al. (2020), as in Qwen3.

    A pass forward, and one for each gradient. Each head has a scale of its own here, where models share one.
    """

    def __init__(self, w: Writing, x: str, out: str, scale: str, head: int) -> None:
        self.w, self.x, self.out, self.scale = w, x, out, scale
        self.fn, self.how = "head_rms", {"head": head}
        w.weight(scale, 1, w.shapes[x].cols, "scale", head)

    def finish(self) -> None:
        """Write the result."""
        self.w.map(self.out, "head_rms_norm", self.x, self.scale, **self.how)


class WideNorm:
    """out = x / rms(x) · scale over the columns of all heads, whose sums of squares ranks add up.

    Source: OLMo team (2025), 2 OLMo 2 Furious, section 3.2; vLLM's norm of MiniMax-M2 for tensor parallelism.
    """

    def __init__(self, w: Writing, x: str, out: str, scale: str) -> None:
        like = w.shapes[x]
        self.w, self.x, self.out, self.scale = w, x, out, scale
        self.bare = w.like(f"{out}.bare", x) if w.trains else out
        self.rstd = f"{out}.rstd"
        w.weight(scale, 1, like.cols, "scale", like.head)
        w.map(w.tensor(f"{out}.squares", w.tokens, 1, "statistics"), "row_sum_squares", x)

    def finish(self) -> None:
        """Write the result, once sums of other norms are on their way too."""
        w = self.w
        w.tensor(self.rstd, w.tokens, 1, "statistics")
        w.map(self.rstd, "rms_rstd", f"{self.out}.squares", columns=w.shapes[self.x].cols)
        w.map(self.bare, "mul_rows", self.x, self.rstd)
        w.fused_map(self.out, "mul_cols", self.bare, self.scale)

    def backward(self, dy: str, dx: str) -> None:
        """Write the gradients by x and by the scales."""
        w = self.w
        w.scale_gradient(self.scale, self.bare, dy)
        bare = w.gradient(self.bare)
        w.map(bare, "mul_cols", dy, self.scale)
        dot = w.tensor(f"{self.out}.dot", w.tokens, 1, "statistics")
        w.fused_map(dot, "row_dot", bare, self.bare)
        w.map(dx, "norm_grad", bare, self.bare, dot)
        w.fused_map(dx, "mul_rows", dx, self.rstd)
