"""New machine files: made from another machine's, and from nvidia-smi's and hwloc's view of a node."""
