"""The GPUs of this process: calibrated, then MLP-1 and MLP-2 predicted and measured over many layouts."""
