"""``python -m experiments chains``: search every case, write the CSV files and the tables of README.md."""

from experiments.chains.page import main

main()
