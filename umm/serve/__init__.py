"""A deployment in steady state: the time to the first token, the time of each further one, memory."""
