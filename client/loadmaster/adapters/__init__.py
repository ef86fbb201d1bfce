"""From a microbatch to what a training framework's model takes: plain functions that return torch tensors by name.

# T = tokens of the microbatch (with cp: of the rank's slice), E = segment boundaries (segments + 1)
"""

from .for_megatron import megatron
from .for_torchtitan import torchtitan
from .for_transformers import transformers

__all__ = ["megatron", "torchtitan", "transformers"]
