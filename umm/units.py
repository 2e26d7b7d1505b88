"""Read and write quantities with units; inside the program everything is seconds, bytes and flop."""

import re
from decimal import Decimal
from math import isfinite

from umm.errors import InputError
from umm.files import shown
from umm.numbers import real_in, whole_in

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*(\S*)")


def _split(text: str, kind: str, example: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text.strip())
    number = real_in(match[1]) if match else None
    if match is None or number is None:
        raise InputError(f"{shown(text)} is not {kind}; write it like {example!r}")
    return number, match[2]


def _scaled(text: str, unit: str, kind: str, example: str) -> float:
    number, suffix = _split(text, kind, example)
    if suffix.endswith(unit):
        prefix = suffix.removesuffix(unit)
        scale = _DECIMAL.get(prefix) or _BINARY.get(prefix)
        if scale is not None and isfinite(number * scale):
            return number * scale
    raise InputError(f"{shown(text)} is not {kind}; write it like {example!r}")


def parse_bandwidth(text: str) -> float:
    """Return bytes/s, one direction.

    >>> parse_bandwidth("26.5 GB/s")
    26500000000.0
    """
    return _scaled(text, "B/s", "a bandwidth", "450 GB/s")


def parse_bytes(text: str) -> int:
    """Return bytes; a bare number is bytes.

    >>> parse_bytes("16GiB"), parse_bytes("64 GB")
    (17179869184, 64000000000)
    """
    plain = whole_in(text.strip(), below=10**18)
    if plain is not None:
        return plain
    return round(_scaled(text, "B", "a size in bytes", "16GiB"))


def parse_rate(text: str) -> float:
    """Return flop/s.

    >>> parse_rate("22.7 Tflop/s")
    22700000000000.0
    """
    return _scaled(text, "flop/s", "an arithmetic rate", "67 Tflop/s")


def parse_seconds(text: str) -> float:
    """Return seconds.

    >>> parse_seconds("3 us")
    3e-06
    """
    number, suffix = _split(text, "a time", "3 us")
    if suffix not in _TIME:
        raise InputError(f"{shown(text)} is not a time; write it like '3 us'")
    return number * _TIME[suffix]


_DIMENSION = {"": 1, "k": 2**10, "K": 2**10, "M": 2**20, "G": 2**30} | {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def parse_dimension(text: str) -> int:
    """Return a size of matrices or a number of tokens: K, M and G are powers of 1,024, 1e6 is a million.

    >>> parse_dimension("48K"), parse_dimension("2M"), parse_dimension("1e6"), parse_dimension("2.5e3")
    (49152, 2097152, 1000000, 2500)
    """
    match = re.fullmatch(r"([0-9]+)\s*(k|Ki?|Mi?|Gi?|)", text.strip())
    number = whole_in(match[1], below=10**100) if match else None
    if match is not None and number is not None:
        return number * _DIMENSION[match[2]]
    if re.fullmatch(r"[0-9]{1,19}(\.[0-9]{1,19})?[eE]\+?[0-9]{1,2}", text.strip()):
        million = Decimal(text.strip())
        if million == million.to_integral_value() and million < 2**63:
            return int(million)
    raise InputError(f"{shown(text)} is not a size; write it like 49152, 48K, 2M (2097152) or 1e6")


def format_seconds(seconds: float) -> str:
    """Return a time with the unit that keeps three or four figures readable.

    >>> format_seconds(0.0744), format_seconds(3.2e-6), format_seconds(0.0)
    ('74.40 ms', '3.20 µs', '0 s')
    """
    if seconds == 0:
        return "0 s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= scale:
            value = seconds / scale
            figures = f"{value:#.4g}".rstrip(".") if abs(value) >= 10 else f"{value:.2f}"
            return f"{figures} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def duration(seconds: float) -> str:
    """Return a time that a person waits, in one or two figures.

    >>> duration(1.4), duration(75), duration(1500), duration(9000)
    ('1 s', '75 s', '25 min', '2.5 h')
    """
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def short_seconds(seconds: float) -> str:
    """Return a time in two or three figures.

    >>> short_seconds(0.0744), short_seconds(3.21e-6), short_seconds(0.0)
    ('74 ms', '3.2 µs', '0 s')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            value = seconds / scale
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
    return f"{seconds * 1e9:.0f} ns" if seconds else "0 s"


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit that suits times up to this many seconds, and how many of it a second has.

    >>> time_unit(0.02)
    ('ms', 1000.0)
    """
    for unit, per_second in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * per_second >= 1:
            return unit, per_second
    return "ns", 1e9


def byte_unit(nbytes: float) -> tuple[str, int]:
    """Return the unit that suits sizes up to this many bytes, and how many bytes it has.

    >>> byte_unit(1536)
    ('KiB', 1024)
    """
    units = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
    return next((x for x in units if abs(nbytes) >= x[1]), ("B", 1))


def format_bytes(nbytes: float) -> str:
    """Return a size in binary units.

    >>> format_bytes(17179869184), format_bytes(1536), format_bytes(12)
    ('16.0 GiB', '1.5 KiB', '12 B')
    """
    unit, scale = byte_unit(nbytes)
    return f"{nbytes / scale:.{1 if scale > 1 else 0}f} {unit}"


def format_bandwidth(bandwidth: float) -> str:
    """Return bytes/s in decimal units, as link data sheets print them.

    >>> format_bandwidth(450e9)
    '450 GB/s'
    """
    for unit, scale in (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6)):
        if bandwidth >= scale:
            return f"{bandwidth / scale:.4g} {unit}"
    return f"{bandwidth:.4g} B/s"


def format_rate(rate: float) -> str:
    """Return flop/s in decimal units, from Gflop/s on; Pflop/s from 10 of them.

    >>> format_rate(22.7e12), format_rate(93.13e9), format_rate(82.73e15)
    ('22.7 Tflop/s', '93.13 Gflop/s', '82.73 Pflop/s')
    """
    if rate >= 1e16:
        return f"{rate / 1e15:.4g} Pflop/s"
    return f"{rate / 1e12:.4g} Tflop/s" if rate >= 1e12 else f"{rate / 1e9:.4g} Gflop/s"


def percent(share: float, digits: int = 0, signed: bool = False) -> str:
    """Return a share as text; a program without any flop has no share of the peak.

    Args:
        signed: Whether the share is a difference, whose sign is written even if it is positive.

    >>> percent(0.714), percent(0.7142, 1), percent(0.7142, 1, signed=True), percent(float("nan"))
    ('71 %', '71.4 %', '+71.4 %', 'no flop')
    """
    return f"{100 * share:{'+' if signed else ''}.{digits}f} %" if share == share else "no flop"


def gap_in_words(gap: float) -> str:
    """Return how far a bound is from the best, in percent.

    >>> gap_in_words(0.0084), gap_in_words(0.0796), gap_in_words(0.997), gap_in_words(1.5)
    ('0.84 %', '8 %', '100 %', '150 %')
    """
    points = 100 * gap
    return f"{points:.2g} %" if points < 99.5 else f"{points:,.0f} %"


def counted(count: int, noun: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "gemm"), counted(2, "gemm")
    ('1 gemm', '2 gemms')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def range_in_words(seconds: float, ends: tuple[float, float]) -> str:
    """Return the range of a time in the unit that the time is written in.

    >>> range_in_words(46.4e-3, (44.2e-3, 52.1e-3)), range_in_words(983e-6, (937e-6, 1.15e-3))
    ('44.2 to 52.1', '937 to 1150')
    """
    scale = _TIME[format_seconds(seconds).partition(" ")[2]]
    low, high = (end / scale for end in ends)
    low_text, high_text = (f"{x:.0f}" if x >= 100 else f"{x:#.3g}".rstrip(".") for x in (low, high))
    return f"{low_text} to {high_text}"
