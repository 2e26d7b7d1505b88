"""What would change a choice: other machine numbers, sizes and replication factors."""
