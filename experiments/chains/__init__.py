"""The best layouts of MLP blocks and transformer layers beside Megatron's and sequence parallel."""
