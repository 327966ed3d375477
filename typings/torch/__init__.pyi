"""Any name of torch, which is not installed where types are checked.

Without this file a checker takes `neyman/torch.py` for it.
"""

from typing import Any

def __getattr__(name: str) -> Any: ...
