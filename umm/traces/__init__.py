"""An executor's report and its analyses: breakdown, traffic, critical path, verdict."""
