"""How transfers share links: own links, shared links filled max-min fairly, and which of the two fits."""
