"""Text of anybody as a word of a command line."""

import shlex

from umm.quoting.terminal import visible


def word(text: str) -> str:
    r"""Return a text as one word of a POSIX shell, its unseen parts visible.

    >>> print(word("llama 3; rm -rf $HOME"), word("a\x1b[31m"))
    'llama 3; rm -rf $HOME' 'a\x1b[31m'
    """
    return shlex.quote(visible(text).replace("\n", " "))


def comment(text: str) -> str:
    r"""Return a comment of one line, in TOML as in a shell.

    >>> comment("on h100-8\nrm -rf /")
    '# on h100-8 rm -rf /'
    """
    return "# " + visible(" ".join(text.split()))
