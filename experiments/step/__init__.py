"""Training steps as others measured them, beside the prediction: NVIDIA's records, SimuMax on 8 B200."""
