"""Save and load a training run: its parameters and its number of steps begun.

``begun``, the number of steps begun, is on disk before the first random bit of these steps is
drawn. The state of the random generator is never saved. After a crash, someone may have seen these
steps, so a continued run starts after them.
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
from neyman.storage.reading import read_file, read_json

CHECKPOINT = "checkpoint.bin"
_SCHEMA = "neyman-training-checkpoint/1"
_MAX_CHECKPOINT_BYTES = 1 << 40
Content = TypeVar("Content")


class CheckpointError(ValueError):
    """Report a checkpoint that cannot be used, or a folder that holds something else."""


def other_terms(folder: Path) -> CheckpointError:
    """Return the error for a folder that holds a run with other terms."""
    return CheckpointError(
        f"out = {str(folder)!r} holds a run of other terms; give the call that began it, "
        "or another folder"
    )


@dataclass(frozen=True)
class State:
    """Record the progress of a run.

    Args:
        key: the hash of the terms of the run.
        entry: the number of the run's charge in the ledger.
        done: number of steps that are over: their results are in the parameters, or lost.
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
    """Replace the last checkpoint by a new one, so that a crash leaves one of the two.

    Args:
        schema: the name of the content's format.
        more: further fields of the head, the file's first line, as JSON types.
    """
    digest = hashlib.sha256(content).hexdigest()
    head = {"schema": schema, **asdict(state), **more, "sha256": digest}
    replace_file(folder / CHECKPOINT, json.dumps(head).encode() + b"\n" + content)


def read(
    folder: Path, schema: str, decode: Callable[[bytes, dict[str, Any]], Content]
) -> tuple[State, Content] | None:
    """Return the state and the content in a folder, or None without a checkpoint.

    Args:
        decode: a function of the content's bytes and the head's fields that returns the content,
            and removes the fields that it uses.

    Raises:
        CheckpointError: the checkpoint is damaged, or belongs to a run of another kind.
    """
    path = folder / CHECKPOINT
    try:
        line, _, content = read_file(path, _MAX_CHECKPOINT_BYTES, links=False).partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    try:
        head = read_json(line)
        if (written := head.pop("schema")) != schema:
            raise CheckpointError(
                f"out = {str(folder)!r} holds a checkpoint of the format {written!r:.80}, and this "
                f"call reads {schema!r}: nothing was changed; continue it with the call and the "
                "version of neyman that began it, or give another folder"
            )
        if hashlib.sha256(content).hexdigest() != head.pop("sha256"):
            raise ValueError("its parameters have another hash")
        decoded = decode(content, head)
        state = State(**head)
        if [type(value) for value in asdict(state).values()] != [str, int, int, int, int]:
            raise ValueError("its head has a field of another type")
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
    """Write a checkpoint with the parameters of `ny.train`, as `write` does."""
    content = np.ascontiguousarray(parameters, "<f8").tobytes()
    write(folder, state, _SCHEMA, content, shape=list(parameters.shape))


def load(folder: Path) -> tuple[State, NDArray[np.float64]] | None:
    """Return the state and the parameters in a folder of `ny.train`, as `read` does."""

    def decode(content: bytes, head: dict[str, Any]) -> NDArray[np.float64]:
        return np.frombuffer(content, "<f8").reshape(head.pop("shape")).astype(np.float64)

    return read(folder, _SCHEMA, decode)
