"""``python -m experiments truth``: write rows.csv and the table of README.md."""

from experiments.truth.page import main

main()
