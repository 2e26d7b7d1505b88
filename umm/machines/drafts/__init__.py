"""New machine files: made from another machine's, and from what nvidia-smi and hwloc say of a node."""
