"""``python -m experiments.cpu``: predicted against measured on this host."""

from experiments.cpu.run import main

main()
