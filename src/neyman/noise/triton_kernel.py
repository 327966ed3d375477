"""Draw exact noise by Triton kernels: ChaCha20, and integers compared with tables [NT-8].

Each function works like the function of the same name in `neyman.noise.tensor_operations`. Nothing
here is a floating-point number. With ``TRITON_INTERPRET=1``, kernels run on a CPU, for tests.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUntypedFunctionDecorator=false, reportIndexIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

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

KEY_DRAWS: int = 1 << 28  # draws per key

_OPEN = tl.constexpr(OPEN_DRAW)
_WORDS = tl.constexpr(PROPOSAL_WORDS)
_ROUNDS = tl.constexpr(BLOCK_PROPOSALS)
_CONSTANTS = tl.constexpr(CONSTANTS)
_DOUBLE_ROUNDS = tl.constexpr(DOUBLE_ROUNDS)


def _share_kernel(function):
    """Compile a function for use in kernels. Return it unchanged if kernels are interpreted."""
    part = triton.jit(function)
    return part if isinstance(part, triton.JITFunction) else function


_quarter, _exponents = _share_kernel(quarter), _share_kernel(exponents)
_series, _chances = _share_kernel(series), _share_kernel(chances)


@triton.jit
def _four(key, zero):
    first, second = zero + tl.load(key), zero + tl.load(key + 1)
    return first, second, zero + tl.load(key + 2), zero + tl.load(key + 3)


@triton.jit
def _block(key, counter):
    """Compute the sixteen ChaCha20 words of the block with each counter, for nonce 0."""
    zero = counter ^ counter
    c0, c1 = zero + _CONSTANTS[0], zero + _CONSTANTS[1]
    c2, c3 = zero + _CONSTANTS[2], zero + _CONSTANTS[3]
    k0, k1, k2, k3 = _four(key, zero)
    k4, k5, k6, k7 = _four(key + 4, zero)
    a0, a1, a2, a3, b0, b1, b2, b3 = c0, c1, c2, c3, k0, k1, k2, k3
    e0, e1, e2, e3, d0, d1, d2, d3 = k4, k5, k6, k7, counter, zero, zero, zero
    for _ in range(_DOUBLE_ROUNDS):
        a0, b0, e0, d0 = _quarter(a0, b0, e0, d0)
        a1, b1, e1, d1 = _quarter(a1, b1, e1, d1)
        a2, b2, e2, d2 = _quarter(a2, b2, e2, d2)
        a3, b3, e3, d3 = _quarter(a3, b3, e3, d3)
        a0, b1, e2, d3 = _quarter(a0, b1, e2, d3)
        a1, b2, e3, d0 = _quarter(a1, b2, e3, d0)
        a2, b3, e0, d1 = _quarter(a2, b3, e0, d1)
        a3, b0, e1, d2 = _quarter(a3, b0, e1, d2)
    return (
        a0 + c0, a1 + c1, a2 + c2, a3 + c3, b0 + k0, b1 + k1, b2 + k2, b3 + k3,
        e0 + k4, e1 + k5, e2 + k6, e3 + k7, d0 + counter, d1, d2, d3,
    )  # fmt: skip


@triton.jit
def _low_word(word):
    return word.to(tl.int64) & 0xFFFFFFFF


@triton.jit
def _low_bits(high, rest, length):
    both = (_low_word(high) << 32) | _low_word(rest)
    one = _low_word(high ^ high) + 1
    return (both >> (64 - length)) & ((one << length) - 1)


@triton.jit
def _signed_place(strip, low, minus, length, half, fine):
    place = (strip.to(tl.int64) << length) | low
    place = (place + half) >> fine
    return tl.where(minus, -place, place)


@triton.jit
def _table_draw(word, entries, step):
    value = word & 0x7FFFFFFF
    k = word ^ word
    while step > 0:
        above = k + step
        k = tl.where(tl.load(entries + above) <= value, above, k)
        step = step >> 1
    signed = tl.where(word < 0, -k, k).to(tl.int64)
    return tl.where(tl.load(entries + k) < value - 1, signed, _low_word(word) + _OPEN)


@triton.jit
def _strip_draw(word, high, rest, guide, length, half, fine, IS_DISCRETE: tl.constexpr):
    entry = tl.load(guide + (word & 0x7FFF))
    strip = entry >> 16
    minus = (word & 0x8000) != 0
    still = ((word >> 16) & 0xFFFF) >= (entry & 0xFFFF)
    if IS_DISCRETE:
        still = still | (minus & (strip == 0))
    signed = _signed_place(strip, _low_bits(high, rest, length), minus, length, half, fine)
    return tl.where(still, _low_word(word) + _OPEN, signed)


@triton.jit
def _decisions(word, words, guide, starts, settings, IS_DISCRETE: tl.constexpr):
    """Return draws and the words of open draws, as `tensor_operations.decisions` does."""
    length, half, fine = tl.load(settings), tl.load(settings + 1), tl.load(settings + 2)
    right, left, step = tl.load(settings + 3), tl.load(settings + 4), tl.load(settings + 5)
    number, factor, most = tl.load(settings + 6), tl.load(settings + 7), tl.load(settings + 8)
    result = _low_word(word ^ word) + (_OPEN + 1)
    s0, s1, s2, s3 = word, word, word, word
    active = word == word
    for turn in tl.static_range(_ROUNDS):
        more, high = words[_WORDS * turn + 1], words[_WORDS * turn + 2]
        rest = words[_WORDS * turn + 3]
        entry = tl.load(guide + (word & 0x7FFF))
        strip, first = (entry >> 16).to(tl.int64), (word >> 16) & 0xFFFF
        minus = (word & 0x8000) != 0
        low = _low_bits(high, rest, length)
        near = (low >> right) << left
        d_low, d_high = _exponents(strip, near, near + step, factor)
        least, greatest = _chances(tl.load(starts + strip), _series(d_low), _series(d_high))
        least = tl.where(strip == number, 0, least)
        greatest = tl.where(strip == number, most, greatest)
        value = (first.to(tl.int64) << 14) | (_low_word(more) >> 18)
        signed = _signed_place(strip, low, minus, length, half, fine)
        accepted = (first < (entry & 0xFFFF)) | (value < least)
        refused = (value >= greatest) & (accepted == 0)
        if IS_DISCRETE:
            refused = refused | (accepted & minus & (signed == 0))
            accepted = accepted & (refused == 0)
        still = active & (accepted == 0) & (refused == 0)
        result = tl.where(active & accepted, signed, result)
        result = tl.where(still, _OPEN, result)
        s0, s1 = tl.where(still, word, s0), tl.where(still, more, s1)
        s2, s3 = tl.where(still, high, s2), tl.where(still, rest, s3)
        active = active & refused
        word = tl.where(active, words[_WORDS * turn], word)
    return result, s0, s1, s2, s3


@triton.jit(do_not_specialize=["size", "step"])
def _table_kernel(out, key, entries, size, step, BLOCKS: tl.constexpr):
    tile = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCKS)
    words = _block(key, (tile * BLOCKS + lane).to(tl.int32))
    for j in tl.static_range(16):
        place = (tile * 16 + j) * BLOCKS + lane
        tl.store(out + place, _table_draw(words[j], entries, step), mask=place < size)


@triton.jit(do_not_specialize=["size"])
def _strip_kernel(
    out, key, guide, settings, size,
    N: tl.constexpr, IS_DISCRETE: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCKS)
    words = _block(key, (tile * BLOCKS + lane).to(tl.int32))
    length, half, fine = tl.load(settings), tl.load(settings + 1), tl.load(settings + 2)
    for j in tl.static_range(16 // N):
        high, rest = words[N * j + N // 2], words[N * j + N - 1]
        place = (tile * (16 // N) + j) * BLOCKS + lane
        draw = _strip_draw(words[N * j], high, rest, guide, length, half, fine, IS_DISCRETE)
        tl.store(out + place, draw, mask=place < size)


@triton.jit(do_not_specialize=["size"])
def _decision_kernel(
    out, places, state, key, guide, starts, settings, size,
    IS_DISCRETE: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    lane = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)
    inside = lane < size
    place = tl.load(places + lane, mask=inside, other=0)
    word = tl.load(out + place, mask=inside, other=0).to(tl.int32)
    words = _block(key, lane.to(tl.int32))
    result, s0, s1, s2, s3 = _decisions(word, words, guide, starts, settings, IS_DISCRETE)
    tl.store(out + place, result, mask=inside)
    tl.store(state + lane, s0, mask=inside)
    tl.store(state + size + lane, s1, mask=inside)
    tl.store(state + 2 * size.to(tl.int64) + lane, s2, mask=inside)
    tl.store(state + 3 * size.to(tl.int64) + lane, s3, mask=inside)


def draw_table(out: torch.Tensor, key: torch.Tensor, law: TableTensors) -> None:
    """Write draws from a table to ``out``, as `tensor_operations.draw_table` does."""
    grid = (triton.cdiv(out.numel(), 16 * GROUP_BLOCKS),)
    _table_kernel[grid](
        out, key, law.entries, out.numel(), law.entries.numel() // 2, BLOCKS=GROUP_BLOCKS
    )


def draw_strips(out: torch.Tensor, key: torch.Tensor, law: StripTensors) -> None:
    """Write draws by strips to ``out``, as `tensor_operations.draw_strips` does."""
    grid = (triton.cdiv(out.numel() * law.words, 16 * GROUP_BLOCKS),)
    words = out.numel(), law.words, law.is_discrete
    _strip_kernel[grid](out, key, law.guide, law.settings, *words, BLOCKS=GROUP_BLOCKS)


def decide_strips(
    out: torch.Tensor, places: torch.Tensor, key: torch.Tensor, law: StripTensors
) -> torch.Tensor:
    """Finish draws that their first random word leaves undecided, as in `tensor_operations`."""
    n = places.numel()
    state = torch.empty((PROPOSAL_WORDS, n), dtype=torch.int32, device=out.device)
    tables = law.guide, law.starts, law.settings
    kernel = _decision_kernel[(triton.cdiv(n, GROUP_BLOCKS),)]
    kernel(out, places, state, key, *tables, n, law.is_discrete, BLOCKS=GROUP_BLOCKS)
    return state
