"""A core's share of the largest cache."""

from umm.host import hardware as caches


def cache(folder, name, size, shared):
    (folder / name).mkdir()
    (folder / name / "size").write_text(f"{size}\n")
    (folder / name / "shared_cpu_list").write_text(f"{shared}\n")


def test_a_cache_is_shared_evenly(tmp_path, monkeypatch):
    """Of 32 MiB for eight cores each has 4, which is more than its own 1 MiB."""
    monkeypatch.setattr(caches, "_CACHES", tmp_path)
    assert caches.cache_of_core() == 0
    cache(tmp_path, "index2", "1024K", "0")
    assert caches.cache_of_core() == 2**20
    cache(tmp_path, "index3", "32768K", "0-3,8-11")
    assert caches.cache_of_core() == 2**22


def test_what_is_no_size_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(caches, "_CACHES", tmp_path)
    cache(tmp_path, "index0", "unknown", "0")
    cache(tmp_path, "index1", "48K", "")
    assert caches.cache_of_core() == 0
