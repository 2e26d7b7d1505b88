"""Changes between two files of one machine: by how much, and whether beyond their uncertainty."""

from machine_text import GOOD, SWITCH, write

from umm.machines import machine
from umm.machines.changes import changes

TABLE = """
[[devices.efficiency]]
dtype = "float32"
source = "test"
m = [64, 256]
n = [64]
k = [64, 1024]
value = [[[0.2, 0.4]], [[0.4, 0.8]]]

"""


def made(folder, name, *replaced, table=TABLE):
    text = GOOD + table + SWITCH
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    return machine(write(folder, text, f"{name}.toml"))


def test_a_file_changes_nothing_against_itself(tmp_path):
    assert changes(made(tmp_path, "old"), made(tmp_path, "new")) == []


def test_a_number_that_doubles_is_said_with_what_it_was(tmp_path):
    old, new = made(tmp_path, "old"), made(tmp_path, "new", ('"10 GB/s"', '"20 GB/s"'))
    (change,) = changes(old, new)
    assert change == ("fabric.bandwidth", "10 GB/s", "20 GB/s", 2.0, True)


def test_units_do_not_matter(tmp_path):
    assert changes(made(tmp_path, "old"), made(tmp_path, "new", ('"3 us"', '"3000 ns"'))) == []


def test_a_change_within_both_uncertainties_comes_last_and_is_not_sure(tmp_path):
    """5 % each are unsure: 9 % more memory bandwidth may be none; a launch of 2 us is more than 1."""
    memory = '"1 TB/s", source = "test"'
    old = made(tmp_path, "old", (memory, f"{memory}, uncertainty = 0.05"))
    more = '"1.09 TB/s", source = "test", uncertainty = 0.05'
    new = made(tmp_path, "new", (memory, more), ('launch = { value = "1 us"', 'launch = { value = "2 us"'))
    assert [(x.key, x.sure) for x in changes(old, new)] == [
        ("devices.launch", True),
        ("devices.memory_bandwidth", False),
    ]


def test_messages_from_memory_and_from_caches_are_held_against_themselves(tmp_path):
    """Twice as fast again, as fast at first: a factor of 2; half as fast at first: of a half."""
    sizes = '[message_sizes]\nsource = "test"\nsizes = ["1 KiB"]\nbandwidth = ["4 GB/s"]\n'
    sizes += 'cached_by_size = ["5 GB/s"]\nlink = { value = "10 GB/s", source = "test" }\n'
    old = made(tmp_path, "old", table=TABLE + sizes)
    for name, change, factor in (("again", ("5 GB/s", "10 GB/s"), 2.0), ("first", ("4 GB/s", "2 GB/s"), 0.5)):
        (result,) = changes(old, made(tmp_path, name, table=TABLE + sizes.replace(*change)))
        assert (result.key, result.factor) == ("message_sizes", factor)


def test_of_a_table_the_median_shape_counts(tmp_path):
    """One of four shapes at half its share changes nothing; all of them do."""
    old = made(tmp_path, "old")
    assert changes(old, made(tmp_path, "one", ("0.8]]]", "0.4]]]"))) == []
    (change,) = changes(
        old, made(tmp_path, "all", ("[[[0.2, 0.4]], [[0.4, 0.8]]]", "[[[0.1, 0.2]], [[0.2, 0.4]]]"))
    )
    assert (change.key, change.factor) == ("devices.efficiency[float32]", 0.5)


def test_what_only_one_file_says_is_a_change(tmp_path):
    (change,) = changes(made(tmp_path, "old", table=""), made(tmp_path, "new"))
    assert (change.before, change.factor, change.sure) == ("-", None, True)
