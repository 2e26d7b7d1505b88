"""Print how far off each predictor is, by system, engine, type and size.

python -m experiments league [FOLDER] [--serving] [--splits] [--collectives]

FOLDER has AIConfigurator's multiplies as ``gemm.parquet``; without it they are read from its wheel (extra
aic). The law is fitted on a sample of the same tables (experiments/kernels). Another predictor is a module of
experiments/league/predictors; one without an answer for some rows is judged by the others, whose number is in
brackets. *Noise* is what multiplies of up to 16 rows are off those of a row more and a row less; *rough* what
all are off the two next to them in m, over the law, which no interpolation is far below. With ``--serving``
the rows are attention and experts, and the cells a geometric mean error and the share of rows within 30 %.
With ``--splits`` they are pairs of one mixture by tensor and expert parallelism.
"""

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

from experiments.league import predictors
from experiments.league.rows import cell, games, noise, roughness
from umm.errors import UmmError

FEW = 2.0**31
"""Multiply-adds from which a multiply is large."""
KINDS = {
    "serving": "attention and experts",
    "splits": "experts by tp and by ep",
    "collectives": "nccl-tests' collectives",
}
"""Names of modules, and the kernels that each stands for."""


def main() -> int:
    """Play all games and print the table: geometric mean errors of small and large multiplies."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", help="of gemm.parquet; the wheel's tables if not given"
    )
    for kind, words in KINDS.items():
        parser.add_argument(f"--{kind}", action="store_true", help=f"{words} of FOLDER")
    options = parser.parse_args()
    for kind in (x for x in KINDS if getattr(options, x)):
        if options.folder is None:
            parser.error("only multiplies are read from the wheel; give FOLDER")
        for line in importlib.import_module(f"experiments.league.{kind}").report(options.folder):
            print(line, flush=True)
        return 0
    names = sorted(x.name for x in pkgutil.iter_modules(predictors.__path__))
    ways = {x: importlib.import_module(f"{predictors.__name__}.{x}") for x in names}
    print(
        f"{'system engine type':34}{'rows':>6}{'noise':>7}{'rough':>7}  " + "".join(f"{x:>20}" for x in ways)
    )
    try:
        for game in games(options.folder):
            large = game.judged[:, :3].prod(axis=1) >= FEW
            cells = []
            for way in ways.values():
                seconds = way.seconds(game)
                cells.append("–" if seconds is None else cell(seconds, game.judged[:, 3], large))
            print(
                f"{' '.join(game.name):34}{len(game.judged):>6}"
                f"{noise(game.known):>7.1%}{roughness(game):>7.1%}  " + "".join(f"{x:>20}" for x in cells)
            )
    except UmmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
