"""Odd texts, and texts that are nearly right."""

from random import Random

ODD = (
    "", " ", "\t", "\n", "0", "-1", "1", "2", "3.5", "1e999", "-0", "nan", "inf", "1e-320", "9" * 25,
    "9" * 400, "٣", "½", "x",
    "@", ":", "=", ",", ";", "(", ")", "[", "{", "<script>", "../..", "/dev/null", "%s", "\\", "'", '"',
    "#", "é", "😀",
    "\x1b[31m", "\x9b2J", "\u202e", "\ud800", "\x7f", "row", "col@2", "2d:3x4", "all", "none", "on", "A",
    "True", "None", "x0.5",
    "h100-8", "16GiB", "float32", "x" * 300, " " * 300, "@2@2", ":balanced", "-", "--", "--help",
)  # fmt: skip


def odd_text(random: Random) -> str:
    """Return a text that hardly anything is meant by."""
    if random.random() < 0.7:
        return random.choice(ODD)
    return "".join(
        chr(random.choice((random.randrange(32, 127), random.randrange(0x3000))))
        for _ in range(random.randrange(12))
    )


def changed_text(random: Random, text: str, most: int = 3) -> str:
    """Return a text with some characters dropped, doubled, exchanged or put in; some are as they were."""
    for _ in range(0 if random.random() < 0.35 else random.randint(1, most)):
        at = random.randrange(len(text) + 1)
        how = random.randrange(6)
        if how == 0:
            text = text[:at] + odd_text(random) + text[at:]
        elif how == 1:
            text = text[:at] + text[at + random.randrange(1, 4) :]
        elif how == 2:
            text = text[:at] + text[max(0, at - random.randrange(1, 6)) :]
        elif how == 3 and text:
            other = random.randrange(len(text))
            text = text[:at] + text[other : other + 1] + text[at + 1 :]
        elif how == 4:
            text = text[:at] + random.choice("0123456789.:x@-,=()eE") + text[at + 1 :]
        elif how == 5:
            text = text.swapcase() if random.random() < 0.5 else text + text
    return text
