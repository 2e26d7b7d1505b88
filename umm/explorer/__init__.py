"""The page on which partitions and replication factors are explored live; it needs the extra ``explore``."""
