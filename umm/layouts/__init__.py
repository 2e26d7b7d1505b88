"""How a matrix lies over ranks: edges, owners of tiles, replicas, and the text that says so."""
