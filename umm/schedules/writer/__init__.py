"""What writes schedules: the Builder, and what actions cost on a machine."""
