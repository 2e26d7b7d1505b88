"""The device core: what every executor of queues and events runs, whatever makes them.

It knows a :class:`~umm_hw.devices.device.Device`: CuPy's and OpenCL's are the two that are real.
"""
