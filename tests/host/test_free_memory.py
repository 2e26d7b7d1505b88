"""A host's free memory: its own, and its control group's limit."""

from umm.host import hardware as free_memory


def test_the_cache_of_files_in_a_control_group_counts_as_free(tmp_path, monkeypatch):
    """Of 1,000 bytes 900 are in use, 600 of them for files read before: 700 are free."""
    monkeypatch.setattr(free_memory, "_CGROUP", tmp_path)
    for name, text in (("max", "1000\n"), ("current", "900\n"), ("stat", "anon 300\ninactive_file 600\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert free_memory.free_memory() == 700
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory.free_memory() > 2**20
