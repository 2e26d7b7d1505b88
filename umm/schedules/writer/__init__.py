"""Writing schedules: the Builder, and the costs of actions on a machine."""
