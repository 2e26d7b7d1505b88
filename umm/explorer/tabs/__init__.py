"""The tabs of the page, by name and in their order."""

from umm.explorer.tabs import leaderboard, measured, replication, step, trace, whatif
from umm.explorer.view import Tab

TABS: dict[str, Tab] = {
    tab.name: tab
    for tab in (
        leaderboard.LEADERBOARD,
        replication.TAB,
        leaderboard.COORDINATES,
        trace.SCHEDULE,
        trace.LINKS,
        trace.TILES,
        trace.ROOFLINE,
        whatif.TAB,
        whatif.SCALING,
        step.TAB,
        measured.TAB,
    )
}
