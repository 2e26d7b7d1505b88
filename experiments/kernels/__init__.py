"""Laws of multiplies and collectives by engine, fitted to measured tables, and how far off they are."""
