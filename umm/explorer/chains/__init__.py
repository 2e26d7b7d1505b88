"""The page of a chain: its sizes, the search over its layouts, and what a row of that is."""
