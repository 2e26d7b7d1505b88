"""An MPI job: who starts its ranks, who leads, and who notices that one has died."""
