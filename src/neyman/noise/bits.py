"""Where randomness comes from: 64-bit words, in a release from the operating system's entropy."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import NoReturn, final

import numpy as np
from numpy.typing import NDArray

from neyman.numerics import check

KEY_WORDS = 1 << 16  # words under one key: half a MiB, which stays in the processor's cache


class Bits(ABC):
    """A source of independent uniform 64-bit words."""

    @abstractmethod
    def words(self, n: int) -> NDArray[np.uint64]:
        """``n`` fresh words, each uniform on 0, ..., 2^64 - 1 and independent of all others.

        Args:
            n: how many, at least 0.

        Returns:
            An array of shape ``(n,)`` and type uint64.
        """


@final
class SecureBits(Bits):
    """Words from the ChaCha20 stream cipher, keyed by the operating system.

    Every call takes a 256-bit key from ``os.urandom``, and another for each ``KEY_WORDS`` words; a
    key is forgotten as soon as its keystream is used. So an instance holds no random state:
    instances, threads and the two sides of a fork have no keystream in common, and no seed exists.

    Raises:
        ImportError: where the package ``cryptography`` is not installed.

    Source: RFC 8439.
    """

    def __init__(self) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
        except ImportError as error:
            raise ImportError(
                "SecureBits needs the package cryptography: pip install 'neyman[release]'"
            ) from error
        self._cipher: type[Cipher[None]] = Cipher
        self._chacha = algorithms.ChaCha20

    def words(self, n: int) -> NDArray[np.uint64]:
        """``n`` fresh words; see `Bits.words`."""
        words = np.empty(check.integer("n", n), np.uint64)
        for start in range(0, words.size, KEY_WORDS):
            chunk = words[start : start + KEY_WORDS].view(np.uint8).data
            # A fixed nonce is sound because no key is used twice.
            cipher = self._cipher(self._chacha(os.urandom(32), bytes(16)), mode=None)
            cipher.encryptor().update_into(bytes(chunk.nbytes), chunk)
        return words

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "SecureBits is neither pickled nor copied, so that noise is drawn in one known place: "
            "make a new SecureBits() where it is needed"
        )
