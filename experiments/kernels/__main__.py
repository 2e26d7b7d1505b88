"""Fit the laws of kernels by engine to measured tables, and put them into the machine files.

python -m experiments kernels FOLDER [--only h100_sxm …] [--kinds multiplies …] [--write]

FOLDER has AIConfigurator's tables as Parquet files: gemm, nccl and custom_allreduce for multiplies and
collectives; context_attention, generation_attention, context_mla and generation_mla for attention; moe for
experts; wideep_deepep_normal and wideep_deepep_ll for exchange. Without ``--write`` the parts of
the files are printed.
"""

import argparse
from pathlib import Path

from experiments.common.machines import shipped
from experiments.kernels import laws, serving, write
from experiments.kernels.chips import MACHINES

PARTS = {
    "multiplies": write.HEAD,
    "attention": write.ATTENTION,
    "experts": write.EXPERTS,
    "exchange": write.EXCHANGE,
}
"""Parts of machine files, and the line above each."""


def main() -> None:
    """Fit, and print or write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="of gemm.parquet, nccl.parquet and the others")
    parser.add_argument("--only", nargs="+", choices=tuple(MACHINES), default=tuple(MACHINES), help="devices")
    parser.add_argument("--write", action="store_true", help="into the shipped machine files")
    parser.add_argument("--kinds", nargs="+", choices=PARTS, default=list(PARTS), help="laws to fit")
    options = parser.parse_args()
    for system in options.only:
        machine = shipped(MACHINES[system])
        for kind in options.kinds:
            if kind != "multiplies":
                text = "\n".join(serving.text(options.folder, system, machine, kind))
            else:
                text = laws.text(laws.fitted(laws.tables(options.folder, system), machine), machine)
            if options.write:
                write.put(machine.source_path, text, PARTS[kind])
                print(f"wrote {machine.source_path.name}")
            else:
                print(text)


if __name__ == "__main__":
    main()
