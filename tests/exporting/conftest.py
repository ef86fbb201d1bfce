"""Small runs to export, and clusters of real processes that serve them."""

from ..cli.conftest import data_dir, spec_file
from ..system.conftest import corpus, frozen, make_run, start_cluster

__all__ = ["corpus", "data_dir", "frozen", "make_run", "spec_file", "start_cluster"]
