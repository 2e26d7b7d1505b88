"""What an executor reports, and what follows from it: breakdown, traffic, critical path, verdict."""
