"""Which tokens go to which experts: drawn by a seed, balanced, or given as counts or choices.

Each token's row is sent to ``top_k`` different experts. Rows of *routed* tensors are sorted by expert, and
those of an expert by token. So the rows of each expert are a range that is known before anything runs. The
text of a routing says all of it, so that it is the same in every layout and on every executor.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from umm.arrays import Ints
from umm.errors import ProblemError
from umm.files import shown
from umm.interval import Interval
from umm.layouts.edges import zigzag_edges
from umm.numbers import parse_real, parse_whole

WORDS = "uniform, zipf:1.2, balanced, counts:3-0-5 or choices:0.1-1.2"
MOST_EXPERTS = 2**16  # of a routing, each of which has a range of rows; models have up to some hundreds
_TEXT = re.compile(
    r"(\d{1,12})x(\d{1,9})x(\d{1,9}):(.+?):(\d{1,9})"
    r"(?::capacity=(\d{1,6}(?:\.\d{1,6})?))?(?::spare=(\d{1,6})/([1-9]\d{0,5}))?"
    r"(?::data=([1-9]\d{0,5})/([1-9]\d{0,11})(?::zigzag=([1-9]\d{0,5})/([1-9]\d{0,6}))?)?(:each)?"
)
AT_ONCE = 2**24  # random numbers that exist at once while choices are drawn


@dataclass(frozen=True)
class Routing:
    """The experts of each token.

    >>> print(Routing(4, 3, 2, "balanced"), Routing(4, 3, 2, "balanced").edges.tolist())
    4x3x2:balanced:0 [0, 3, 6, 8]
    """

    tokens: int  # how many tokens there are
    experts: int  # how many experts
    top_k: int  # experts of a token
    # `uniform`, `zipf:1.2` (the n-th most wanted expert is drawn in proportion to 1 / n^1.2), `balanced`,
    # `counts:3-0-5` (rows of each expert) or `choices:0.1-1.2` (experts of each token).
    rule: str = "uniform"
    seed: int = 0  # of what is drawn
    # How many times the mean an expert takes at most; what comes later, by token, is dropped, so a token has
    # fewer rows. 0 for no limit.
    capacity: float = 0.0
    # Copies of the experts with most rows for each copy, one after another: *slots* beside one for each
    # expert. A copy takes an equal share of its expert's rows, those of tokens beside each other.
    spare: int = 0
    # Groups of slots, equal in number, that have about as many rows each, if there are copies.
    groups: int = 1
    each: bool = False  # whether a token travels once for each of its rows, even where a rank has several
    data: int = 1  # data groups: ranges of tokens that each have all experts, and copies, for themselves
    data_tokens: int = 0  # Tokens of a data group; the last has what is left. Of one group it means nothing.
    # Ranks that have the tokens front and back of so many sequences, if they do: a data group has those of as
    # many ranks that follow each other, in place of a range.
    zigzag: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        """Check the numbers and the rule."""
        if self.experts > MOST_EXPERTS:
            raise ProblemError(f"{self.experts} experts are too many; write at most {MOST_EXPERTS}")
        if not 1 <= self.top_k <= self.experts:
            raise ProblemError(
                f"a token cannot go to {self.top_k} of {self.experts} experts; top_k is from 1 to experts"
            )
        if self.groups < 1 or self.spare < 0 or not 0 <= self.capacity < 1e6:
            raise ProblemError(
                f"capacity {self.capacity:g}, {self.spare} spare and {self.groups} groups are not possible; "
                "give a capacity and spare from 0, groups from 1"
            )
        if self.data < 1 or (self.data > 1 and self.data * self.data_tokens < self.tokens):
            raise ProblemError(
                f"{self.data} data groups of {self.data_tokens} tokens do not have all {self.tokens} tokens"
            )
        self._check_rule(*self.rule.partition(":")[::2])

    def _check_rule(self, word: str, rest: str) -> None:
        fits = {
            "uniform": not rest,
            "balanced": not rest,
            "zipf": re.fullmatch(r"\d{1,2}(\.\d{1,6})?", rest),
            "counts": re.fullmatch(r"\d{1,12}(-\d{1,12})*", rest),
            "choices": re.fullmatch(r"\d{1,9}(\.\d{1,9})*(-\d{1,9}(\.\d{1,9})*)*", rest),
        }
        if not fits.get(word):
            raise ProblemError(f"routing {shown(self.rule)} is unknown; write it like {WORDS}")
        if word == "counts":
            counts, rows = _numbers(rest), self.tokens * self.top_k
            if len(counts) != self.experts or sum(counts) != rows or max(counts) > self.tokens:
                raise ProblemError(
                    f"{len(counts)} counts of {sum(counts)} rows are not those of {self.experts} experts for "
                    f"{self.tokens} tokens and top {self.top_k}: {rows} rows, at most {self.tokens} an expert"
                )
        if word == "choices":
            of_tokens = rest.split("-")
            for token, text in enumerate(of_tokens):
                chosen = {parse_whole(x) for x in text.split(".")}
                if len(chosen) != self.top_k or max(chosen) >= self.experts or len(of_tokens) != self.tokens:
                    raise ProblemError(
                        f"choices of {len(of_tokens)} tokens, of token {token} {shown(text)}, are not those "
                        f"of {self.tokens} tokens of {self.top_k} different experts below {self.experts}"
                    )

    @classmethod
    def parse(cls, text: str) -> "Routing":
        """Return the routing that ``str`` of one says; ProblemError if the text is not one."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ProblemError(f"{shown(text)} is not a routing; write it like 37x6x2:uniform:0")
        tokens, experts, top_k, rule, *others = match.groups()
        seed, spare, groups, data, of_data, *zigzag = (
            parse_whole(others[x] or "0") for x in (0, 2, 3, 4, 5, 6, 7)
        )
        sizes = parse_whole(tokens), parse_whole(experts), parse_whole(top_k)
        of_groups = data or 1, of_data, (zigzag[0], zigzag[1])
        capacity = parse_real(others[1] or "0")
        return cls(*sizes, rule, seed, capacity, spare, groups or 1, bool(others[8]), *of_groups)

    def __str__(self) -> str:
        text = f"{self.tokens}x{self.experts}x{self.top_k}:{self.rule}:{self.seed}"
        text += f":capacity={self.capacity:g}" if self.capacity else ""
        text += f":spare={self.spare}/{self.groups}" if self.spare else ""
        text += f":data={self.data}/{self.data_tokens}" if self.data > 1 else ""
        text += ":zigzag={}/{}".format(*self.zigzag) if self.data > 1 and self.zigzag[0] else ""
        return text + ":each" * self.each

    @cached_property
    def by_choice(self) -> "Routing":
        """The same routing, by which a token travels once for each of its rows."""
        return routing(f"{self}:each") if not self.each else self

    @property
    def rows(self) -> int:
        """Rows of a routed tensor: one for each token and expert of it that is not dropped."""
        return len(self.token_of) if self.capacity else self.tokens * self.top_k

    @property
    def places(self) -> int:
        """Experts, and copies of them, of one data group: the blocks of rows that weights have."""
        return self.experts + self.spare

    @property
    def slots(self) -> int:
        """Experts, and copies of them, of all data groups, one group after another."""
        return self.data * self.places

    @cached_property
    def choices(self) -> Ints:
        """The experts of each token, in order, dropped or not: an array of shape (tokens, top_k)."""
        bare = replace(
            self, capacity=0.0, spare=0, groups=1, each=False, data=1, data_tokens=0, zigzag=(0, 0)
        )
        return _choices(bare)

    @cached_property
    def _sorted(self) -> tuple[Ints, Ints, Ints]:
        """The token, the expert and the slot of each routed row."""
        chosen = self.choices.reshape(-1)
        token = np.repeat(np.arange(self.tokens, dtype=np.int64), self.top_k)
        order = np.argsort(chosen, kind="stable")
        token, expert = token[order], chosen[order]
        if self.capacity:
            most = int(np.ceil(self.capacity * self.tokens * self.top_k / self.experts))
            kept = np.arange(len(expert)) - np.searchsorted(expert, expert) < most
            token, expert = token[kept], expert[kept]
        if self.slots == self.experts:
            return token, expert, expert
        group = self._data_group(token)
        key = group * self.experts + expert
        order = np.argsort(key, kind="stable")
        token, expert, group, key = token[order], expert[order], group[order], key[order]
        copies, place = self._in_group(np.bincount(expert, minlength=self.experts))
        number = np.arange(len(key)) - np.searchsorted(key, key)
        copy = number * copies[expert] // np.bincount(key)[key]
        slot = group * self.places + place[(np.cumsum(copies) - copies)[expert] + copy]
        order = np.lexsort((token, slot))
        return token[order], expert[order], slot[order]

    def _data_group(self, token: Ints) -> Ints:
        """Return the data group of each token."""
        if self.data == 1:
            return 0 * token
        ranks, sequences = self.zigzag
        if not ranks:
            return token // self.data_tokens
        tile = np.searchsorted(zigzag_edges(self.tokens, ranks, sequences), token, side="right") - 1
        return tile % ranks * self.data // ranks

    def _in_group(self, counts: Ints) -> tuple[Ints, Ints]:
        """Return how many copies of each expert a data group has, and the place of each copy."""
        if not self.spare:
            return np.ones(self.experts, dtype=np.int64), np.arange(self.experts, dtype=np.int64)
        copies = np.ones(self.experts, dtype=np.int64)
        for _ in range(self.spare):  # always the one with most rows for each copy gets one more
            copies[np.argmax(counts / copies)] += 1
        return copies, self._placed(counts, copies)

    def _placed(self, counts: Ints, copies: Ints) -> Ints:
        """Return the place of each copy of each expert: the largest first, to the group with fewest rows."""
        # Copies of one expert are in different groups as far as they can be, in the order of their tokens.
        expert = np.repeat(np.arange(self.experts), copies)
        load = counts[expert] / copies[expert]
        first = np.array([group * self.places // self.groups for group in range(self.groups + 1)])
        free, rows = np.diff(first), np.zeros(self.groups)
        in_group = np.zeros((self.groups, self.experts), dtype=bool)
        chosen = np.empty(self.places, dtype=np.int64)
        for copy in np.argsort(-load, kind="stable"):
            group = int(np.lexsort((rows, in_group[:, expert[copy]], free == 0))[0])
            chosen[copy], in_group[group, expert[copy]] = group, True
            free[group] -= 1
            rows[group] += load[copy]
        chosen = chosen[np.lexsort((chosen, expert))]  # an expert's earlier tokens to its earlier group
        place = np.empty(self.places, dtype=np.int64)
        place[np.argsort(chosen, kind="stable")] = np.arange(self.places)
        return place

    @property
    def token_of(self) -> Ints:
        """The token of each routed row."""
        return self._sorted[0]

    @property
    def expert_of(self) -> Ints:
        """The expert of each routed row."""
        return self._sorted[1]

    @property
    def slot_of(self) -> Ints:
        """The slot of each routed row."""
        return self._sorted[2]

    @cached_property
    def expert_of_place(self) -> Ints:
        """The expert of each place of a data group."""
        copies, place = self._in_group(np.bincount(self.expert_of, minlength=self.experts))
        experts = np.empty(self.places, dtype=np.int64)
        experts[place] = np.repeat(np.arange(self.experts), copies)
        return experts

    @cached_property
    def _tokens(self) -> dict[tuple[Interval, ...], Ints]:
        """The different tokens of sets of rows that were asked for before."""
        return {}

    @cached_property
    def _tokens_of_rows(self) -> dict[Interval, Ints]:
        """The tokens of rows whose number in a range was asked for, in order."""
        return {}

    @cached_property
    def edges(self) -> Ints:
        """The first row of each slot, and the number of rows at the end."""
        return np.searchsorted(self.slot_of, np.arange(self.slots + 1))

    def rows_of(self, slot: int) -> Interval:
        """Return the rows of a slot: of an expert, where none has copies."""
        return Interval(int(self.edges[slot]), int(self.edges[slot + 1]))

    def experts_of(self, rows: Interval) -> range:
        """Return the experts from the first to the last that some rows are of."""
        if not rows.size:
            return range(0)
        experts = self.expert_of[rows.start : rows.stop]
        return range(int(experts.min()), int(experts.max()) + 1)

    def slots_of(self, rows: Interval) -> range:
        """Return the slots of some rows, from the first to the last."""
        if not rows.size:
            return range(0)
        return range(int(self.slot_of[rows.start]), int(self.slot_of[rows.stop - 1]) + 1)

    def tokens_of(self, rows: Interval, within: Interval | None = None) -> Ints:
        """Return the tokens that travel for some rows, in order; those of a range alone if one is given."""
        return self.tokens_of_all((rows,), within)

    def tokens_of_all(self, rows: tuple[Interval, ...], within: Interval | None = None) -> Ints:
        """Return the same for rows in several ranges that do not overlap."""
        if rows not in self._tokens:
            tokens_of_rows = np.concatenate([self.token_of[x.start : x.stop] for x in rows])
            self._tokens[rows] = np.sort(tokens_of_rows) if self.each else np.unique(tokens_of_rows)
        tokens = self._tokens[rows]
        if within is None:
            return tokens
        # A mixture asks for all pairs of ranks, and the method takes a third of the function's time.
        return tokens[tokens.searchsorted(within.start) : tokens.searchsorted(within.stop)]

    def rows_for(self, rows: Interval, within: Interval) -> Ints:
        """Return those of some rows whose token is in a range."""
        token = self.token_of[rows.start : rows.stop]
        return rows.start + np.flatnonzero((token >= within.start) & (token < within.stop))

    def count_for(self, rows: Interval, within: Interval) -> int:
        """Return the number of some rows whose token is in a range."""
        if rows not in self._tokens_of_rows:
            self._tokens_of_rows[rows] = np.sort(self.token_of[rows.start : rows.stop])
        tokens = self._tokens_of_rows[rows]
        return int(tokens.searchsorted(within.stop) - tokens.searchsorted(within.start))

    def _chosen(self) -> Ints:
        """Return the experts of each token, in order: an array of shape (tokens, top_k)."""
        word, _, rest = self.rule.partition(":")
        if word == "choices":
            return np.sort([[parse_whole(x) for x in token.split(".")] for token in rest.split("-")], axis=1)
        if word == "balanced":
            slots = np.arange(self.tokens * self.top_k, dtype=np.int64)
            return np.sort(slots.reshape(self.tokens, self.top_k) % self.experts, axis=1)
        if word == "counts":  # an expert's slots are consecutive, so no token has one twice
            slots = np.repeat(np.arange(self.experts, dtype=np.int64), _numbers(rest))
            return np.sort(slots.reshape(self.top_k, self.tokens).T, axis=1)
        return self._drawn(parse_real(rest or "0"))

    def _drawn(self, exponent: float) -> Ints:
        """Return choices without replacement in proportion to weights, by the Gumbel-top-k trick."""
        # Source: Kool, van Hoof & Welling (2019), Stochastic beams and where to find them.
        draw = np.random.default_rng(self.seed)
        weight = -exponent * np.log(1.0 + draw.permutation(self.experts))
        step, chosen = max(1, AT_ONCE // self.experts), []
        for first in range(0, self.tokens, step):
            count = min(step, self.tokens - first)
            noise = -np.log(-np.log(np.maximum(draw.random((count, self.experts)), 1e-300)))
            if self.top_k == self.experts:
                chosen.append(np.tile(np.arange(self.experts), (count, 1)))
                continue
            most = np.argpartition(-(weight + noise), self.top_k, axis=1)[:, : self.top_k]
            chosen.append(np.sort(most, axis=1))
        return np.concatenate(chosen).astype(np.int64)


@lru_cache(maxsize=8)
def _choices(known: Routing) -> Ints:
    """Return the drawn choices, once for all capacities and copies."""
    return known._chosen()


@lru_cache(maxsize=64)
def routing(text: str) -> Routing:
    """Return the routing of a text, made once; ProblemError if the text is not one."""
    return Routing.parse(text)


def _numbers(text: str) -> Sequence[int]:
    return [parse_whole(x) for x in text.split("-")]
