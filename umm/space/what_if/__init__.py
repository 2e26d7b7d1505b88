"""Changes that would replace a choice: other machine numbers, sizes and budgets."""
