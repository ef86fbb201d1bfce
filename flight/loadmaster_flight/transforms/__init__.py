"""Transforms: how a row of a source becomes a document of token ids, or a verdict with its reason."""

from .build import build_transform
from .chat_template import CHATML
from .sample import Measured
from .transform import Transform

__all__ = ["CHATML", "Measured", "Transform", "build_transform"]
