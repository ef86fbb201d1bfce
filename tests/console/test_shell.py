"""The console's frame: signing in, navigation, keys, the live badge, and what happens when the planner goes away."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

OpenPage = Callable[..., Page]
SCREENS = ["/runs", "/runs/tides", "/runs/tides/sources", "/runs/tides/checkpoints", "/audit", "/access"]


@pytest.mark.parametrize("path", SCREENS)
def test_screen_in_both_themes_has_no_violation(path: str, open_page: OpenPage, check_accessible) -> None:
    page = open_page(path, role="admin")
    expect(page.locator("[aria-busy=true], .mantine-Skeleton-root")).to_have_count(0)
    check_accessible(page)
