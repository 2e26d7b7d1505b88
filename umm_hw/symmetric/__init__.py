"""A process per rank, each with one device, in whose memory all reach each other: NVSHMEM's and OpenCL's."""
