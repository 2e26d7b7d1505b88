"""The IR: steps in which gemms and communication overlap, the policies that find them, and their costs."""
