"""Supply random 64-bit words, in a release from the operating system's entropy."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import NoReturn, final

import numpy as np
from numpy.typing import NDArray

from neyman.numerics import check

KEY_WORDS = 1 << 16  # words per key: half a MiB, which fits in the processor's cache


class Bits(ABC):
    """Represent a source of independent uniform 64-bit words."""

    @abstractmethod
    def words(self, n: int) -> NDArray[np.uint64]:
        """Return ``n`` fresh words, each uniform on 0, ..., 2^64 - 1 and independent of all others.

        Args:
            n: number of words, at least 0.

        Returns:
            An array of shape ``(n,)`` and type uint64.
        """


@final
class SecureBits(Bits):
    """Supply words from the ChaCha20 stream cipher, keyed by the operating system.

    Every call takes a new 256-bit key from ``os.urandom`` for each ``KEY_WORDS`` words. A key is
    forgotten as soon as its keystream is used. So an instance holds no random state: instances,
    threads and forked processes share no keystream, and no seed exists.

    Raises:
        ImportError: the package ``cryptography`` is not installed.

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
        """Return ``n`` fresh words; see `Bits.words`."""
        words = np.empty(check.integer("n", n, 0, 1 << 40), np.uint64)
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
