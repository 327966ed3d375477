"""Draw exact noise by tensor operations, if Triton is missing.

`neyman.noise.triton_kernel` has the same functions. From the same key and counters, it gives the
same draws [NT-8].
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import torch

from neyman.noise.lane_arithmetic import (
    CONSTANTS,
    DOUBLE_ROUNDS,
    chances,
    exponents,
    quarter,
    series,
)
from neyman.noise.tensor_laws import (
    BLOCK_PROPOSALS,
    GROUP_BLOCKS,
    OPEN_DRAW,
    PROPOSAL_WORDS,
    StripTensors,
    TableTensors,
)

KEY_DRAWS: int = 1 << 22  # draws per key
LOW_HALF = 0xFFFFFFFF


def keystream(key: torch.Tensor, counters: torch.Tensor) -> torch.Tensor:
    """Return the ChaCha20 words of these blocks, with nonce 0, as int32 of shape (16, blocks).

    Args:
        key: eight int32 words.
        counters: the int64 numbers of the blocks, from 0 to 2^32 - 1.

    Source: RFC 8439, section 2.3.
    """
    n = counters.numel()
    first = torch.tensor(CONSTANTS, dtype=torch.int32, device=key.device)
    last = torch.zeros((4, n), dtype=torch.int32, device=key.device)
    last[0] = counters.to(torch.int32)
    start = [x.reshape(4, 1).expand(4, n) for x in (first, key[:4], key[4:])] + [last]
    a, b, c, d = start
    for _ in range(DOUBLE_ROUNDS):
        a, b, c, d = quarter(a, b, c, d)
        b, c, d = (torch.roll(x, -k, 0) for k, x in ((1, b), (2, c), (3, d)))
        a, b, c, d = quarter(a, b, c, d)
        b, c, d = (torch.roll(x, k, 0) for k, x in ((1, b), (2, c), (3, d)))
    return torch.cat([x + y for x, y in zip((a, b, c, d), start, strict=True)])


def draw_table(out: torch.Tensor, key: torch.Tensor, law: TableTensors) -> None:
    """Write draws to ``out``. For a draw left open, write ``OPEN_DRAW`` plus its first word."""
    out.copy_(table_draws(words_of(key, out.numel(), 1)[0], law))


def table_draws(word: torch.Tensor, law: TableTensors) -> torch.Tensor:
    """Return the draw that each word decides, or ``OPEN_DRAW`` plus the word if it decides none."""
    value = word & 0x7FFFFFFF
    k = torch.searchsorted(law.entries, value, right=True, out_int32=True) - 1
    low = law.entries[k]
    signed = torch.where(word < 0, -k, k).to(torch.int64)
    return torch.where(low < value - 1, signed, _low_word(word) + OPEN_DRAW)


def draw_strips(out: torch.Tensor, key: torch.Tensor, law: StripTensors) -> None:
    """Write draws to ``out``. For a draw left open, write ``OPEN_DRAW`` plus its first word."""
    out.copy_(strip_draws(words_of(key, out.numel(), law.words), law))


def strip_draws(words: torch.Tensor, law: StripTensors) -> torch.Tensor:
    """Return the draw that each column of ``words`` decides, or a code if it decides none.

    A column has two or four words. The code is ``OPEN_DRAW`` plus its first word.
    """
    entry = law.guide[words[0] & 0x7FFF]
    strip, first = entry >> 16, (words[0] >> 16) & 0xFFFF
    minus = (words[0] & 0x8000) != 0
    still = first >= (entry & 0xFFFF)
    if law.is_discrete:
        still |= minus & (strip == 0)
    low = _low_bits(words[law.words // 2], words[-1], law.length)
    signed = _signed_place(strip, low, minus, law)
    return torch.where(still, _low_word(words[0]) + OPEN_DRAW, signed)


def decide_strips(
    out: torch.Tensor, places: torch.Tensor, key: torch.Tensor, law: StripTensors
) -> torch.Tensor:
    """Decide the open draws at the indices ``places`` of ``out``, which still holds their codes.

    If a proposal is refused, the next one is tried, up to ``BLOCK_PROPOSALS`` in all.

    Returns:
        An int32 tensor of shape (``PROPOSAL_WORDS``, places), with the words of each draw that is
        still open. In ``out`` such a draw is ``OPEN_DRAW``. A draw whose proposals were all refused
        is ``OPEN_DRAW + 1``.
    """
    words = keystream(key, torch.arange(places.numel(), device=out.device))
    out[places], state = decisions(out[places].to(torch.int32), words, law)
    return state


def decisions(
    word: torch.Tensor, words: torch.Tensor, law: StripTensors
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the draws that these random words decide, and the words of the undecided draws.

    ``word`` has the first word of each draw. ``words`` has sixteen more for each draw, along its
    first axis. The results have the codes and the shape that `decide_strips` describes.
    """
    result = torch.full(word.shape, OPEN_DRAW + 1, dtype=torch.int64, device=word.device)
    state = torch.zeros((PROPOSAL_WORDS, *word.shape), dtype=torch.int32, device=word.device)
    active = torch.ones_like(word, dtype=torch.bool)
    for turn in range(BLOCK_PROPOSALS):
        following, more, high, rest = words[PROPOSAL_WORDS * turn : PROPOSAL_WORDS * (turn + 1)]
        entry = law.guide[word & 0x7FFF]
        strip, first = (entry >> 16).to(torch.int64), (word >> 16) & 0xFFFF
        minus = (word & 0x8000) != 0
        low = _low_bits(high, rest, law.length)
        near = (low >> law.right) << law.left
        far = near + law.step
        d_low, d_high = exponents(strip, near, far, law.factor)
        least, most = chances(law.starts[strip], series(d_low), series(d_high))
        tail = strip == law.number
        least = torch.where(tail, 0, least)
        most = torch.where(tail, law.most, most)
        value = (first.to(torch.int64) << 14) | (_low_word(more) >> 18)
        sure = first < (entry & 0xFFFF)
        signed = _signed_place(strip, low, minus, law)
        accepted = sure | (value < least)
        refused = ~accepted & (value >= most)
        if law.is_discrete:
            refused |= accepted & minus & (signed == 0)
            accepted &= ~refused
        result = torch.where(active & accepted, signed, result)
        still = active & ~accepted & ~refused
        result = torch.where(still, OPEN_DRAW, result)
        state = torch.where(still, torch.stack([word, more, high, rest]), state)
        active = active & refused
        word = torch.where(active, following, word)
    return result, state


def words_of(key: torch.Tensor, size: int, count: int) -> torch.Tensor:
    """Return ``count`` keystream words for each of ``size`` draws, one column per draw [NT-8]."""
    draws = 16 // count  # draws per block
    tiles = -(-size // (draws * GROUP_BLOCKS))
    words = keystream(key, torch.arange(tiles * GROUP_BLOCKS, device=key.device))
    grid = words.view(draws, count, tiles, GROUP_BLOCKS).permute(1, 2, 0, 3)
    return grid.reshape(count, -1)[:, :size]


def _low_bits(high: torch.Tensor, rest: torch.Tensor, length: int) -> torch.Tensor:
    """Return the first ``length`` bits, at most 48, of the 64 bits of ``high`` and ``rest``."""
    both = (_low_word(high) << 32) | _low_word(rest)
    return (both >> 64 - length) & ((1 << length) - 1)


def _signed_place(
    strip: torch.Tensor, low: torch.Tensor, minus: torch.Tensor, law: StripTensors
) -> torch.Tensor:
    """Return the signed integer drawn for each entry of a tensor.

    Its absolute value has the bits of ``strip``, the number of the entry's strip, then the bits
    ``low``. The last ``law.fine`` bits are a fraction, which is rounded. ``minus`` is True for a
    minus sign.
    """
    place = (strip.to(torch.int64) << law.length) | low
    place = (place + law.half) >> law.fine
    return torch.where(minus, -place, place)


def _low_word(word: torch.Tensor) -> torch.Tensor:
    return word.to(torch.int64) & LOW_HALF
