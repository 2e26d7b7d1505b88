"""Fit the laws of kernels by engine to measured tables, and put them into the machine files.

python -m experiments kernels FOLDER [--only h100_sxm …] [--write]

FOLDER has AIConfigurator's tables as Parquet files (gemm, nccl, custom_allreduce). Without ``--write`` the
parts of the files are printed.
"""

import argparse
from pathlib import Path

from experiments.common.machines import shipped
from experiments.kernels import laws, write
from experiments.kernels.chips import MACHINES


def main() -> None:
    """Fit, and print or write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", type=Path, help="of gemm.parquet, nccl.parquet and custom_allreduce.parquet"
    )
    parser.add_argument("--only", nargs="+", choices=tuple(MACHINES), default=tuple(MACHINES), help="devices")
    parser.add_argument("--write", action="store_true", help="into the shipped machine files")
    options = parser.parse_args()
    for system in options.only:
        machine = shipped(MACHINES[system])
        text = laws.text(laws.fitted(laws.tables(options.folder, system), machine), machine)
        if options.write:
            write.put(machine.source_path, text)
            print(f"wrote {machine.source_path.name}")
        else:
            print(text)


if __name__ == "__main__":
    main()
