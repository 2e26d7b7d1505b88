"""The tabs of the page, a file for each: its name, its panel, and what it shows of a view."""

from umm.explorer.tabs import (
    coordinates,
    leaderboard,
    links,
    measured,
    replication,
    roofline,
    schedule,
    tiles,
    whatif,
)
from umm.explorer.tabs.tab import Tab

TABS: dict[str, Tab] = {
    tab.name: tab
    for tab in (
        leaderboard.TAB,
        replication.TAB,
        coordinates.TAB,
        schedule.TAB,
        links.TAB,
        tiles.TAB,
        roofline.TAB,
        whatif.TAB,
        measured.TAB,
    )
}
