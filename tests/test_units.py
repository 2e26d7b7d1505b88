"""Quantities as people write them: no text takes long, and none is taken for another."""

import pytest

from umm.errors import InputError
from umm.units import parse_bandwidth, parse_bytes, parse_dimension, parse_rate, parse_seconds

SPACES = " " * 20_000
PARSERS = (parse_bandwidth, parse_bytes, parse_dimension, parse_rate, parse_seconds)


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "text",
    [
        "1" + " " * 20_000 + "x",
        "1" + " " * 20_000 + "x\n1",
        " " * 20_000,
        "1" * 20_000 + "!",
        "1" * 400 + " B",
    ],
)
def test_a_long_text_is_refused_at_once_and_in_a_short_line(parse, text):
    """A pattern cubic in spaces before a line break takes 5 s for 1,600, and hours for these."""
    with pytest.raises(InputError) as error:
        parse(text)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("text", ["1e400 B", "1e308 TB", "inf B", "nan B", "-1e400 B"])
def test_what_no_float_holds_is_not_a_size(text):
    with pytest.raises(InputError, match="is not a size in bytes"):
        parse_bytes(text)


def test_spaces_around_a_quantity_do_not_matter():
    assert parse_bytes(" 1.5 KiB ") == 1536
    assert parse_dimension(" 4 K ") == 4096


def test_letters_are_powers_of_1024_in_sizes_and_a_million_is_1e6():
    """2M tokens are 256 sequences of 8K, which 2,000,000 would not be."""
    assert parse_dimension("2M") == 2 * 1024 * parse_dimension("1K") == 256 * parse_dimension("8K")
    assert [parse_dimension(x) for x in ("1G", "1Mi", "1e6", "2.5E+3")] == [2**30, 2**20, 10**6, 2500]
    for text in ("1e-3", "1.5e0", "2e99", "1.5K", "1e6K"):
        with pytest.raises(InputError, match="is not a size"):
            parse_dimension(text)


def test_a_point_may_end_a_number():
    assert parse_bandwidth("1.e3 B/s") == 1000.0
