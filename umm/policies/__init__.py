"""The IR: steps in which gemms and communication overlap, how they are found, and what they cost."""
