"""What algorithms share when they write their actions."""
