"""The argument parser of vLLM, SGLang, torchtitan or Megatron-LM alone; missing modules are stubbed.

Run as ``python lone_parser.py FOLDER PACKAGE``, with lists of words as JSON on stdin; prints what the
parser makes of each, or its error. All dependencies are gigabytes; a parser needs few of them.
"""

import argparse
import contextlib
import io
import json
import os
import sys
from dataclasses import is_dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType

PROBED = {"amdsmi", "deep_gemm", "libtpu", "modelscope", "pynvml", "torch_npu", "tpu_inference"}
"""Modules by which packages detect the hardware: without them they take a CPU."""
OPTIONAL = {"megatron": {"apex", "emerging_optimizers", "nvidia_resiliency_ext", "transformer_engine"}}
"""Modules that a package does without, but whose stubs it would take for old versions."""


class _Class(type):
    """A class any of whose attributes is another one; calling it with a function returns that."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return stub(name)

    def __getitem__(cls, key):
        return cls

    def __call__(cls, *args, **more):
        return args[0] if len(args) == 1 and callable(args[0]) and not more else super().__call__()

    def __or__(cls, other):
        return object

    __ror__ = __or__


def _any_schema(cls, source, handler):
    from pydantic_core import core_schema

    return core_schema.any_schema()


def stub(name):
    """Something of a missing module."""
    inside = {
        "__getattr__": lambda self, x: stub(x),
        "__call__": lambda self, *args, **more: args[0] if args else self,
        "__get_pydantic_core_schema__": classmethod(_any_schema),
    }
    return _Class(name, (), inside)


class _Module(ModuleType):
    __path__, __file__, __version__ = (), "stub", "0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__.setdefault(name, stub(name))


class Stubs:
    """The last finder of modules: makes those that a package itself imports."""

    def __init__(self, package):
        self.package, self.made = package, set()

    def find_spec(self, name, path=None, target=None):
        """The spec of a stub; None for a module that somebody else probes."""
        top, frame = name.partition(".")[0], sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        asks = frame.f_globals.get("__name__", "").partition(".")[0] if frame else ""
        absent = {*PROBED, *OPTIONAL.get(self.package, ()), self.package}
        if top not in self.made and (asks != self.package or top in absent):
            return None
        self.made.add(top)
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        """An empty module."""
        return _Module(spec.name)

    def exec_module(self, module):
        """Nothing is in it."""


def vllm():
    """vLLM's parser of a server's engine."""
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())


def sglang():
    """SGLang's parser of a server."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser


def torchtitan():
    """torchtitan's parser of flags and of the TOML that one of them names."""
    from torchtitan.config.manager import ConfigManager

    return ConfigManager()


class Megatron:
    """Megatron-LM's parser and its checks, as on GPUs of compute capability 10 with Transformer Engine."""

    def __init__(self):
        import typing

        import torch._inductor.compile_fx  # noqa: F401  # before a stub of triton is there

        typing.override = getattr(typing, "override", lambda method: method)  # the package is for Python 3.12
        from megatron.training import arguments

        self.arguments = arguments
        arguments.get_device_arch_version = lambda: 10
        arguments.is_te_min_version = lambda *_: True
        arguments._print_args = lambda *_: None

    def parse_args(self, words):
        """Return the values of words of which the first is the number of ranks."""
        os.environ["WORLD_SIZE"], sys.argv[1:] = words[0], words[1:]
        values = self.arguments.parse_args()
        try:
            self.arguments.validate_args(values)
        except AssertionError as error:
            raise ValueError(f"refused: {error}") from None
        return values


def plain(values):
    """Plain values by name, those of sections as ``section.name``."""
    sections = {x: vars(y) for x, y in vars(values).items() if is_dataclass(y)}
    named = vars(values) | {f"{x}.{name}": y for x, inside in sections.items() for name, y in inside.items()}
    return {x: y for x, y in named.items() if isinstance(y, str | int | None)}


def parsed(parser, words):
    """Return a parser's plain values of some words; a text if it refuses them."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return plain(parser.parse_args(words))
    except (SystemExit, TypeError, ValueError) as error:
        return errors.getvalue().strip() or str(error)


if __name__ == "__main__":
    folder, package = sys.argv[1:]
    sys.path.insert(1, folder)
    sys.meta_path.append(Stubs(package))
    lists, out = json.load(sys.stdin), sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        made = {"vllm": vllm, "sglang": sglang, "torchtitan": torchtitan, "megatron": Megatron}[package]()
        results = [parsed(made, words) for words in lists]
    json.dump(results, out)
