"""From a microbatch to what a training framework's model takes: plain functions that return torch tensors by name.

# T = tokens of the microbatch (with cp: of the rank's slice), E = segment boundaries (segments + 1)
"""

from .for_megatron import megatron
from .for_qwen2_vl import qwen2_vl
from .for_torchtitan import torchtitan
from .for_transformers import transformers

__all__ = ["megatron", "qwen2_vl", "torchtitan", "transformers"]
