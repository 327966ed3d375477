"""Run a torch model on invented rows before it sees private ones, and compare what it keeps."""

# torch is no dependency, so its types are unknown if it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import re
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ReferenceType

import numpy as np
import torch
from torch import Tensor
from torch.nn import Embedding, EmbeddingBag, Module

LIBRARIES = sys.stdlib_module_names | {"neyman", "numpy", "opacus", "torch"}
FOLDERS = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
PLAIN = (bool, int, float, complex, str, bytes, bytearray, type(None))
ADDRESS = re.compile(" at 0x[0-9a-f]+")
# Functions of uniform numbers. The first has the range of a probability, the second both signs and
# sizes from 1/100 to 10.
REALS: dict[str, Callable[[Tensor], Tensor]] = {
    "unit": torch.clone,
    "wide": lambda x: torch.where(torch.rand_like(x) < 0.5, -1, 1) * 10 ** (3 * x - 2),
    "zero": torch.zeros_like,
    "nan": lambda x: x / 0 * 0,
}
LOST = "a tensor of torch.func"  # a tensor that outlived its vmap has no values


def invented(given: Tensor, rows: int, largest: int, least: int = 0, reals: str = "unit") -> Tensor:
    """Return ``rows`` random rows of the shape and type of ``given``, of whose values none is used.

    Args:
        largest, least: the ends of whole numbers.
        reals: the kind of real numbers in `REALS`.
    """
    shape = (rows, *given.shape[1:])
    if given.is_floating_point() or given.is_complex():
        return REALS[reals](torch.rand(shape, device=given.device)).to(given.dtype)
    return torch.randint(least, largest + 1, shape, device=given.device).to(given.dtype)


def largest_numbers(model: Module, device: torch.device) -> tuple[int, ...]:
    """Return the largest whole numbers of invented rows to try, until one raises no error.

    On a GPU, a number that is no entry of a table ends all work of the process, so none is tried.
    """
    tables = (layer for layer in model.modules() if isinstance(layer, (Embedding, EmbeddingBag)))
    small = any(table.num_embeddings < 2 for table in tables)
    return (0,) if small else (1,) if device.type == "cuda" else (1, 0)


def tried_reals(device: torch.device) -> tuple[str, ...]:
    """Return kinds of real numbers to try. On a GPU, a target above 1 may end the process."""
    return ("unit", "wide")[: 1 + (device.type == "cpu")]


def state_of(model: Module, loss: object) -> dict[str, str]:
    """Return a digest of all that a model and a loss hold between two calls, by its name.

    This has the tensors, arrays, and attributes of both, what they hold in turn, their classes, and
    the closures and global variables of their functions. It has no file, and no other process.
    """
    digests: dict[str, str] = {}
    objects: dict[int, object] = {}  # keeps the objects, so that no id is used twice
    open_parts: list[tuple[str, Any]] = [("loss", loss), ("", model)]
    while open_parts:
        name, value = open_parts.pop()
        if isinstance(value, Tensor):
            digests[name] = _digest(value)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            digests[name] = f"{value.dtype} {value.shape} {blake2b(value.tobytes()).hexdigest()}"
        elif isinstance(value, PLAIN):
            digests[name] = repr(value)
        elif id(value) not in objects:
            objects[id(value)] = value
            parts = list(_parts(value))
            if not parts and not isinstance(value, (type, ModuleType, ReferenceType)):
                digests[name] = ADDRESS.sub("", repr(value))
            open_parts += [(f"{name}{'.' * bool(name)}{key}", part) for key, part in parts]
    return digests


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the names of the parts that two states of `state_of` do not share."""
    return sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))


def _digest(tensor: Tensor) -> str:
    try:
        plain = tensor.detach().to_dense().cpu().resolve_conj().resolve_neg().contiguous()
        content = plain.reshape(-1).view(torch.uint8).numpy()
    except (RuntimeError, TypeError, NotImplementedError):
        ended = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        return f"{LOST if ended else 'a tensor without bytes'} {id(tensor)}"
    return f"{tensor.dtype} {tuple(tensor.shape)} {blake2b(content).hexdigest()}"


def _package(thing: object) -> str:
    return str(getattr(thing, "__module__", "")).partition(".")[0]


def _is_installed(code: object) -> bool:
    """Return True if a class or a function is not code of the user."""
    file = getattr(sys.modules.get(_package(code)), "__file__", None) or ""
    return _package(code) in LIBRARIES or file.startswith(FOLDERS)


def _parts(value: Any) -> Iterator[tuple[object, Any]]:
    """Return the parts of an object by name. Installed code has none."""
    kind = type(value)
    if isinstance(value, Module):
        hidden = ("_parameters", "_buffers", "_modules")
        for name in hidden:
            yield from vars(value)[name].items()
        yield from ((k, x) for k, x in vars(value).items() if k not in hidden)
    elif isinstance(value, Mapping):
        yield from list(value.items())
    elif isinstance(value, (list, tuple, deque, np.ndarray)):
        yield from enumerate(value)
    elif isinstance(value, (set, frozenset)):
        yield from enumerate(sorted(map(repr, value)))
    elif isinstance(value, FunctionType):
        yield from () if _is_installed(value) else _function_parts(value)
    elif isinstance(value, type):
        yield from () if _is_installed(value) else vars(value).items()
    elif isinstance(value, (partial, MethodType)) or _package(kind) not in LIBRARIES:
        slots = (k for each in kind.__mro__ for k in getattr(each, "__slots__", ()))
        named = ("func", "args", "keywords", "__self__", "__func__", *slots)
        yield from ((k, getattr(value, k)) for k in named if hasattr(value, k))
        yield from getattr(value, "__dict__", {}).items()
    if not _is_installed(kind):
        yield from ((f"type.{each.__qualname__}", each) for each in kind.__mro__)


def _function_parts(function: FunctionType) -> Iterator[tuple[object, Any]]:
    """Return the closure, the defaults, the attributes, and the used global variables."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # the variable has no value yet
            yield name, cell.cell_contents
    yield from (("defaults", function.__defaults__), ("keywords", function.__kwdefaults__))
    yield from function.__dict__.items()
    known = function.__globals__
    yield from ((k, known[k]) for k in sorted(_names(function.__code__)) if k in known)


def _names(code: CodeType) -> set[str]:
    inner = (_names(part) for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*inner)
