"""Deployments as others measured them, beside the prediction: seconds a token and to the first one."""
