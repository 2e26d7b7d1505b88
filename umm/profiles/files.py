"""Profiles as files: Kineto's JSON or Chakra's, packed by gzip or not."""

from pathlib import Path

from umm.errors import InputError
from umm.files import MOST_TEXT, parse_json, read_bytes, unpacked
from umm.profiles import chakra, kineto
from umm.profiles.kernel import Profile


def load_profile(path: str | Path) -> Profile:
    """Return the kernels of a profile's file.

    InputError in one line, if it cannot be read, is longer than files that are read, or has no kernels.
    """
    content = unpacked(read_bytes(path, MOST_TEXT), path, MOST_TEXT)
    try:
        if content.lstrip()[:1] not in (b"{", b"[") and chakra.is_chakra(content):
            return chakra.profile_of(content)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise InputError("neither Kineto's JSON nor a Chakra trace") from None
        data = parse_json(text, "profile")
        if not kineto.is_chrome(data):
            raise InputError(
                "no traceEvents are in it; give what torch.profiler's export_chrome_trace wrote, or a Chakra "
                "trace"
            )
        return kineto.profile_of(data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
