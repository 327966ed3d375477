"""The state of a run on disk: parameters, and which steps have begun. No state of randomness.

`begun` is durable before the first random bit of a step is drawn. So after any crash the steps up
to `begun` may have been seen by someone, and they are over: a run that goes on starts after them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from neyman.storage.durable import replace_file
from neyman.storage.reading import read_file

CHECKPOINT = "checkpoint.bin"
_SCHEMA = "neyman-training-checkpoint/1"
_MAX_CHECKPOINT_BYTES = 1 << 40
Content = TypeVar("Content")


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, or a folder that holds something else."""


def other_terms(folder: Path) -> CheckpointError:
    """Return the error about a folder that holds another run."""
    return CheckpointError(
        f"out = {str(folder)!r} holds a run of other terms; give the call that began it, "
        "or another folder"
    )


@dataclass(frozen=True)
class State:
    """Where a run is.

    Args:
        key: the hash of its terms.
        entry: the number of its charge in the ledger.
        done: number of steps whose result the parameters have, with those that were lost.
        begun: number of steps that may have drawn randomness, at least ``done``.
        lost: number of steps that were charged and have no result.
    """

    key: str
    entry: int
    done: int
    begun: int
    lost: int


def write(
    folder: Path, state: State, schema: str, content: bytes | memoryview, **more: Any
) -> None:
    """Write a checkpoint in place of the last one, durably.

    Args:
        schema: what the content is.
        more: further fields of the head, in JSON types.
    """
    digest = hashlib.sha256(content).hexdigest()
    head = {"schema": schema, **asdict(state), **more, "sha256": digest}
    replace_file(folder / CHECKPOINT, json.dumps(head).encode() + b"\n" + content)


def read(
    folder: Path, schema: str, decode: Callable[[bytes, dict[str, Any]], Content]
) -> tuple[State, Content] | None:
    """Return the state and the content in a folder; None if it has no checkpoint.

    Args:
        decode: returns the content from its bytes, and takes its fields out of the head.

    Raises:
        CheckpointError: it is damaged, or of a run of another kind.
    """
    path = folder / CHECKPOINT
    try:
        line, _, content = read_file(path, _MAX_CHECKPOINT_BYTES, links=False).partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    try:
        head = json.loads(line)
        if head.pop("schema") != schema:
            raise other_terms(folder)
        if hashlib.sha256(content).hexdigest() != head.pop("sha256"):
            raise ValueError("its parameters have another hash")
        decoded = decode(content, head)
        state = State(**head)
        if not 0 <= state.lost <= state.done <= state.begun:
            raise ValueError("its counts of steps contradict each other")
        return state, decoded
    except CheckpointError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is damaged ({error}): the steps after it cannot be known, so the run does not "
            "go on; its charge stands. Start another with charge_again=True and a new folder"
        ) from None


def save(folder: Path, state: State, parameters: NDArray[np.float64]) -> None:
    """Write a checkpoint with the parameters of `ny.train`; see `write`."""
    content = np.ascontiguousarray(parameters, "<f8").tobytes()
    write(folder, state, _SCHEMA, content, shape=list(parameters.shape))


def load(folder: Path) -> tuple[State, NDArray[np.float64]] | None:
    """Return the state and the parameters in a folder of `ny.train`; see `read`."""

    def decode(content: bytes, head: dict[str, Any]) -> NDArray[np.float64]:
        return np.frombuffer(content, "<f8").reshape(head.pop("shape")).astype(np.float64)

    return read(folder, _SCHEMA, decode)
