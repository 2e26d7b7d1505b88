"""Everything the page shows for a state, by ``id.property``."""

from collections.abc import Iterable, Mapping
from typing import Any

from dash import html

from umm.explorer.copies import as_command, as_python, as_search, as_toml
from umm.explorer.layout import FIGURES, MORE, PARTITIONS, named, programs
from umm.explorer.point import NONE, Files
from umm.explorer.state import CHOICE, LOOKS, OPERANDS, PARTS, SIZES, SWITCH, TEXT, State, as_text, of_kind
from umm.explorer.tabs import TABS
from umm.explorer.view import Shown, View, table
from umm.layouts.places import replication_factors
from umm.machines import machine_names
from umm.numbers import whole_in
from umm.plans.multiply.options import known
from umm.space.space import STATIONARY
from umm.space.what_if.beside import Beside
from umm.traces.bottleneck import lost_in_words
from umm.traces.trace import Trace
from umm.traces.traffic import bytes_by_kind
from umm.units import format_bytes, format_seconds, percent

CHOSEN, TYPED, SWITCHES = map(of_kind, (CHOICE, TEXT, SWITCH))
CONTROLS = [
    *(
        f"{name}.value"
        for name in (*CHOSEN, "more", "what", "over", "down", "right", *(x.name for x in known()), *SWITCHES)
    ),
    *(f"{x}-part.value" for x in OPERANDS),
]
"""What a choice comes from by Dash; the browser itself hears of sliders and of what is typed."""
FACTS = [f"fact-{named(name)}.children" for name in FIGURES]
OF_A_MULTIPLY = (*(f"{x}-set" for x in OPERANDS), "multiplies", "algorithm-field", "space-field", "advanced")
OF_A_CHAIN = ("layouts-set", "choices-field", "optimizer-field", "layers-field", "to-toml")
ASKED = (*"mnk", *SIZES, "dtype", "decode", "backward", "dropout")
CANCELLED = "The search was cancelled; change a control to search again."
LEAST = 0.005  # share of the makespan that is named
ORDERING = "Searching an order of the local multiplies…"
UNFIT = "No answer yet: see the errors below."


def control_values(state: State, divisors: list[int]) -> Shown:
    """Return the values of the controls for a state."""
    shown: Shown = {f"{name}.value": getattr(state, name) for name in CHOSEN}
    texts = {name: as_text(getattr(state, name)) for name in (*TYPED, "decode", "backward", "statement")}
    shown |= {
        f"{name}.value": "" if PARTS[name].get("nothing") == text else text for name, text in texts.items()
    }
    for option in known():
        value = getattr(state.options, option.name)
        shown[f"{option.name}.value"] = option.typed(value) if isinstance(value, bool) else value
    shown["more.value"] = state.chain if state.chain in MORE else None
    shown |= {f"{name}.value": ["1"] if getattr(state, name) else [] for name in SWITCHES}
    factors = [0, *divisors]
    shown["fixed-index.value"] = factors.index(state.fixed) if state.fixed in factors else 0
    for x in OPERANDS:
        partition, _, replicated = getattr(state, x).partition("@")
        count = replicated.partition(":")[0] or "1"
        factor = whole_in(count) or 1
        shown[f"{x}-part.value"] = partition if partition in PARTITIONS else None
        shown[f"{x}-index.value"] = divisors.index(factor) if factor in divisors else 0
    return shown


def words(view: View, files: Iterable[str], usual: Mapping[str, str], chains: Files = NONE) -> Shown:
    """Return everything but the controls' values, the tab in sight and the progress.

    Args:
        files: Names of machines whose files are there.
        usual: Every part of an address as it is when nothing is said.
        chains: Files of chains that are there.
    """
    state, point, case = view.state, view.point, view.case
    ranks = case.ranks if case else max(state.ranks, 1)
    divisors = replication_factors(ranks)
    at = point.state if point else state
    facts_ = {"usual": dict(usual), "divisors": divisors, "fixed": [0, *divisors], "looks": LOOKS}
    here = [state.machine] if case else []  # h100-8:tf32 is in no list
    shown: Shown = {
        # The options of the controls, and which of them the program has.
        "machine.options": list(dict.fromkeys([*machine_names(), *files, *here])),
        "chain.options": programs(chains),
        "stationary.options": [x for x in STATIONARY if state.chain or x != "best"],
        "models.hidden": not state.chain or state.of_file,
        **{f"{name}-field.hidden": name not in state.own for name in ASKED},
        **{f"{name}.hidden": bool(state.chain) for name in OF_A_MULTIPLY},
        **{f"{name}.hidden": not state.chain for name in OF_A_CHAIN},
        "fixed-index.max": len(divisors),
        "fixed-words.children": f"{state.across}@{state.fixed}" if state.fixed else "best of all",
        "facts.data": facts_ | {"point": at.query},
        "mistakes.children": [html.P(line) for line in view.wrong],
        **found(view),
        **facts(point.trace if point else None),
        "compare.children": compared(view) if point and view.pinned else None,
        "pin.children": "Unpin" if state.pin else "Pin",
        "as-command.children": as_command(at) if point or not state.waits else "",
        "as-search.children": as_search(state),
        "as-python.children": as_python(at, ranks, point.way.get("stationary") if point else None),
        "as-toml.children": as_toml(at),
    }
    for x in OPERANDS:
        replicated = getattr(state, x).partition("@")[2].partition(":")[0] or "1"
        shown |= {f"{x}-index.max": len(divisors) - 1, f"{x}-words.children": f"{replicated} of {ranks}"}
    return shown | {f"show-{name}.hidden": name != state.tab for name in TABS}


def verdict(view: View, cancelled: bool = False) -> str:
    """Return the sentence: whether it fits, the bottleneck, and the better choice of the search."""
    point = view.point
    if point is None:
        return _unanswered(view, cancelled)
    trace, advice, priced = point.trace, view.advice, view.priced
    if view.state.chain and advice:
        saving = str(advice).partition(":")[0]
        sentence = f"{trace.verdict.removesuffix('.')}; {saving}: {view.unlike(advice.choice)}."
    else:
        sentence = Beside(advice=advice).verdict(trace)
    if advice:
        better, here = format_seconds(advice.choice.makespan_s), format_seconds(point.here[0])
        sentence = f"{sentence} That takes {better}, this point {here}."
    if priced.front and not advice:
        proven = priced.proven or not view.state.chain
        sentence += " Nothing that fits is 1 % faster." if proven else f" {priced.proof}"
    memory = view.choice.memory_bytes if view.choice else point.here[1]
    short = memory - point.case.limit
    if short > 0:
        sentence = f"Does not fit: it needs {format_bytes(short)} more than a rank may have. {sentence}"
    return sentence


def _unanswered(view: View, cancelled: bool) -> str:
    """Return why there is no answer, or none yet."""
    if view.case is None or not (view.state.waits or view.scheduled):
        return UNFIT
    if view.scheduled:
        if view.scheduled.failed:
            return f"No answer: {view.scheduled.failed}."
        if view.wrong:
            return UNFIT
        return CANCELLED if cancelled else ORDERING
    priced, row, choice = view.priced, view.state.row, view.choice
    if choice is not None:
        seconds, memory = format_seconds(choice.makespan_s), format_bytes(choice.memory_bytes)
        return f"{seconds}, {percent(choice.fraction_of_peak)} of peak, {memory} per rank. {priced.proof}"
    if priced.top:
        return f"No answer: there is no row {row}; the search ranks {len(priced.top)}."
    if priced.refusal or priced.failed:
        return f"No answer: {priced.refusal or priced.failed}."
    if cancelled:
        return CANCELLED
    known = {x: name for name, x in priced.named.items() if x is not None}
    best = (
        f" The fastest known scheme, {known[min(known)]}, takes {format_seconds(min(known))}."
        if known
        else ""
    )
    return f"Searching…{best}"


def within(view: View) -> str:
    """Return the range of the makespan in words, once it is known."""
    return Beside(view.ends).within(view.point.trace) if view.point and view.ends else ""


def figures_of(trace: Trace) -> dict[str, tuple[str, float]]:
    """Return the figures of a prediction by their names: as text, and as numbers to compare."""
    moved = float(sum(bytes_by_kind(trace.schedule).values()))
    mean = trace.breakdown().mean
    exposed = float(mean["exposed_communication"])
    figures = (
        (format_seconds(trace.makespan_s), trace.makespan_s),
        (percent(trace.fraction_of_peak), trace.fraction_of_peak),
        (format_bytes(moved), moved),
        (format_seconds(exposed), exposed),
        (format_bytes(trace.memory_bytes), float(trace.memory_bytes)),
        (f"{len(trace.schedule):,}", float(len(trace.schedule))),
    )
    return dict(zip(FIGURES, figures, strict=True))


def facts(trace: Trace | None) -> Shown:
    """Return the strip of a prediction's figures."""
    if trace is None:
        return {"facts-strip.hidden": True, "rest.children": ""}
    texts = (text for text, _ in figures_of(trace).values())
    lost = lost_in_words(trace, LEAST)
    rest = f"The other {percent(1 - trace.fraction_of_peak)} of peak: {lost}." if lost else ""
    return dict(zip(FACTS, texts, strict=True)) | {"facts-strip.hidden": False, "rest.children": rest}


def compared(view: View) -> Any:
    """Return the pinned point beside this one, with the difference of every figure."""
    assert view.point
    assert view.pinned
    other = view.pinned.point
    if other is None:
        why = "; ".join(view.pinned.wrong) or _unanswered(view.pinned, cancelled=False)
        return html.P(f"The pinned point has no answer here: {why}", className="mistakes")
    these, those = figures_of(view.point.trace), figures_of(other.trace)
    rows = []
    for name, (text, number) in these.items():
        before, was = those[name]
        change = percent(number / was - 1, 1, signed=True) if was else "new"
        change = "the same" if number == was else change.replace("no flop", "")
        rows.append(html.Tr([html.Th(name, scope="row"), html.Td(before), html.Td(text), html.Td(change)]))
    names = _apart(other.state, view.point.state)
    headings = ("", f"pinned: {names[0]}", f"this: {names[1]}", "difference")
    return html.Div(table(headings, rows, "compared"), className="scroll")


def _apart(*states: State) -> list[str]:
    """Label each state by its layouts, stationary matrix and the other choices that differ.

    >>> _apart(State(m=1024), State(m=4096, b="col@2"))
    ['row row row, auto, m=1024', 'row col@2 row, auto, m=4096']
    >>> _apart(State(chain="mlp", layouts="X=row,H=col"), State(chain="mlp", layouts="X=row,H=row"))
    ['H=col', 'H=row']
    """
    names = ["machine", "chain", *ASKED, "ranks", "given", "algorithm"]
    unlike = [x for x in names if len({getattr(state, x) for state in states}) > 1]
    if any(state.chain for state in states):
        parts = [state.layouts.split(",") for state in states]
        common = set(parts[0]).intersection(*parts[1:])
        called = [[x for x in mine if x not in common] for mine in parts]
    else:
        called = [[f"{x.a} {x.b} {x.c}", x.stationary] for x in states]
    more = ([f"{name}={getattr(state, name)}" for name in unlike] for state in states)
    return [", ".join([*label, *others]) or "the same" for label, others in zip(called, more, strict=True)]


def progress(view: View, cancelled: bool = False) -> Shown:
    """Return the status line, the stage in a word, and whether the search can be cancelled.

    Args:
        cancelled: Whether the viewer wants no more of the search.
    """
    if view.case is None:
        return {"status.children": "", "status.title": "", "cancel.hidden": True}
    priced, asked = view.priced, view.question
    beside = view.growing or view.scaled
    words = asked.words
    known = f"{len(priced.named)} known" if priced.named else ""  # each is shown as soon as it is there
    stage = "refused" if priced.refusal or priced.failed else priced.stage or known
    unordered = sum(bool(x.scheduled and not x.scheduled.over) for x in (view, view.pinned) if x)
    if unordered:
        stage = f"{stage}, {unordered} to order".removeprefix(", ")
    if cancelled:
        words = f"{words.rstrip('.…')}; cancelled."
    return {
        "status.children": words,
        "status.title": f"{stage}, {beside.stage}" if beside and (stage or asked is beside) else stage,
        "cancel.hidden": asked.over or cancelled,
    }


def found(view: View, cancelled: bool = False) -> Shown:
    """Return the results from behind the page that every tab shows."""
    decides = view.decides if view.point else None  # the assumed number that decides, once it is known
    return {
        "verdict.children": verdict(view, cancelled),
        "fact-range.children": within(view),
        "assumed.children": str(decides.found or "") if decides else "",
    }


def tab_shown(view: View) -> Shown:
    """Return the content of the tab in sight; an impossible state changes nothing in it."""
    return TABS[view.state.tab].shown(view) if view.case else {}
