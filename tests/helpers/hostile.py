"""Texts that would be code, markup or control in some language that texts are put into."""

from random import Random

PARTS = (
    '"', "'", '"""', "'''", "\\", "\\\\", "\n", "\r", "\r\n", "\t", "\x00", "\x1b[31m", "\x1b]0;t\x07",
    "\x7f", "\x9b2J", "\u2028", "\u202e", "\ud800", "{", "}", "{0}", "{x}", "{x!r}", "{0.__class__}", "%s",
    "%(x)s", "%", "$HOME", "${HOME}", "$(id)", "`id`", ";", "&&", "|", ">", "<", "<b>", "</script>",
    "<script>alert(1)</script>", "<a_text>", "<given>", "<options>", "<what>", "<machine>", "&amp;", "-->",
    "]]>", "#", "//", "/*", "=1+1", "@SUM(A1)", "+1", "-1", ",", " ", "  ", "é", "µ", "😀", "\\N{BULLET}",
    "\\x41", "\\u0041", "\\8", "\\n", "open('PWNED','w')", "__import__('os')", "C:\\Users\\new", "x",
    "h100-8", "..", "~", "*", "?", "[", "]", "(", ")", "\x0c", "\x0b", "\x1c", "\x85",
)  # fmt: skip
FIXED = (
    'm""";open("PWNED","w");"""',
    '\'"""+open(\'PWNED2\',\'w\').name+"""',
    '"',
    '""',
    '"""',
    '""""',
    "\\",
    "m\\",
    'sm_90" } entries { key: "x',
    "x\ny\nerror: none",
    "{x}",
    "</script><script>alert(1)</script>",
    "a\rb",
)


def hostile_texts(count=200, seed=0):
    """Different texts, none empty."""
    random, texts = Random(seed), dict.fromkeys(FIXED)
    while len(texts) < count:
        texts["".join(random.choice(PARTS) for _ in range(random.randint(1, 5)))] = None
    return list(texts)[:count]
