"""The web console: the pages that a browser loads, served by the planner's app."""

from .bundle import BUNDLE_DIR, Bundle, BundledFile
from .pages import ConsolePages

__all__ = ["BUNDLE_DIR", "Bundle", "BundledFile", "ConsolePages"]
