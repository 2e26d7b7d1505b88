"""``python -m experiments chains``: search every case, write blocks.csv, layers.csv and the tables of README.md."""

from experiments.chains.page import main

main()
