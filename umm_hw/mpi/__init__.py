"""The MPI executor: ranks as processes, one-sided memory, a thread for each lane, and a watch over them."""
