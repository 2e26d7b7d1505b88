"""``python -m experiments universal``: the two statements of section 5.2 on scheduling."""

from experiments.universal.scheduling import main

main()
