"""The reference executor: p virtual ranks in one process."""
