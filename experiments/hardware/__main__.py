"""``python -m experiments.hardware``: every number of this folder, measured on the GPUs of this host."""

from experiments.hardware.run import main

main()
