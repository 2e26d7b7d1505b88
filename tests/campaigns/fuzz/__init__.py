"""Random input of every kind that umm takes: each is refused in one line, or taken just as it says.

``python -m fuzz`` with ``tests`` on the path runs as many cases as asked for, see ``--help``; a family of
cases is a file here, and a case is its family, the seed and a number.
"""
