"""Ranks as processes over MPI: one-sided memory, a thread for each lane, and a watch over them."""
