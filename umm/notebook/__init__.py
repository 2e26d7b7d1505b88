"""What a notebook shows of a result: its verdict, its main figure and its table, without a server."""
