"""Machines: devices, links and routes, read from machine files."""

from umm.machines.files import machine, machine_names, user_folder
from umm.machines.machine import Link, Machine
from umm.machines.numbers import Fact

__all__ = ["Fact", "Link", "Machine", "machine", "machine_names", "user_folder"]
