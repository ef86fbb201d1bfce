"""The schedule editor as a person at a browser uses it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from playwright.sync_api import Locator, Page, expect

SPACES = re.compile(r"[\u202f\u00a0]")


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """The editor of a run, open in a page."""

    page: Page
    run: str

    def knots(self) -> Locator:
        """Knots of the selected curve that are in view."""
        return self.page.get_by_test_id("canvas").get_by_role("slider")

    def knot_texts(self) -> list[str]:
        """What a screen reader says of each: "step 600, web 40.9 %, weight 0.38"."""
        return [plain(knot.get_attribute("aria-valuetext") or "") for knot in self.knots().all()]

    def select(self, source: str) -> None:
        """Choose the curve to edit."""
        self.page.get_by_role("list", name="Sources").get_by_role("button", name=source).first.click()

    def place(self, across: float, up: float) -> tuple[float, float]:
        """A point of the plot in px: shares of its width from the left, and of its height from the bottom."""
        box = self.page.get_by_test_id("ground").bounding_box()
        assert box is not None
        return box["x"] + across * box["width"], box["y"] + (1 - up) * box["height"]

    def add_by_click(self, across: float, up: float) -> None:
        """A single click on an empty place, and one on what it offers."""
        self.page.mouse.click(*self.place(across, up))
        self.page.get_by_role("button", name="Add knot here").click()

    def move_by_click(self, index: int, across: float, up: float) -> None:
        """Two single clicks: on the knot, and on where it shall be; then on what that offers."""
        self.page.mouse.click(*self.center(index))
        self.page.mouse.click(*self.place(across, up))
        self.page.get_by_role("button", name="Move the selected knot here").click()

    def drag(self, index: int, across: float, up: float) -> None:
        """Take a knot by the mouse and let it go elsewhere."""
        mouse = self.page.mouse
        mouse.move(*self.center(index))
        mouse.down()
        mouse.move(*self.place(across, up), steps=6)
        mouse.up()

    def center(self, index: int) -> tuple[float, float]:
        """Where a knot is, in px."""
        box = self.knots().nth(index).bounding_box()
        assert box is not None
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def type_number(self, label: str, value: str) -> None:
        """Write into a number field of the table beside the picture."""
        field = self.page.get_by_role("textbox", name=label, exact=True)
        field.fill(value)
        field.press("Enter")

    def wait_until_kept(self) -> None:
        """Until the planner has the draft."""
        expect(self.page.get_by_text("draft kept", exact=True)).to_be_visible()

    def review(self, button: str = "Review and publish") -> Locator:
        """Open the dialog in which one publishes."""
        self.page.get_by_role("button", name=button).click()
        return self.page.get_by_role("dialog")

    def publish(self, dialog: Locator, message: str, *, at_step: int | None = None) -> None:
        """Fill in what the dialog asks for, and publish."""
        dialog.get_by_role("textbox", name="Message").fill(message)
        if at_step is not None:
            dialog.get_by_role("textbox", name="From step", exact=True).fill(str(at_step))
        dialog.get_by_role("textbox", name=f"Type {self.run} to confirm").fill(self.run)
        dialog.get_by_role("button", name=re.compile("^(Publish|Schedule for step.*)$")).click()

    def note(self) -> str:
        """What the page says came of it."""
        status = self.page.get_by_role("status").filter(has_text=re.compile("in force from step|Scheduled for step"))
        expect(status).to_be_visible()
        return plain(status.locator("span").first.inner_text())


def grouped(number: int) -> str:
    """As the console writes it."""
    return f"{number:,}".replace(",", "\u202f")


def plain(text: str) -> str:
    """With plain spaces: numbers are grouped with narrow ones."""
    return SPACES.sub(" ", text)
