"""The league of predictors: how far off each way to predict measured multiplies of public tables is."""
