"""The device core: the part that every executor of queues and events shares.

It knows a :class:`~umm_hw.devices.device.Device`: CuPy's and OpenCL's are the two that are real.
"""
