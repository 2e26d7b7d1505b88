"""SUMMA2.5-LM (Tesseract): 2-D and 2.5-D multiplies, and its strong and weak scaling on 64 GPUs."""
