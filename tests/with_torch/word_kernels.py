"""Kernels that take words from memory instead of a keystream, and draw as those of neyman do.

Import this where ``TRITON_INTERPRET`` is set, and the kernels are loaded under the name below.
"""

import interpreted_kernel as triton_kernel
import triton
import triton.language as tl

_table_draw = triton_kernel._table_draw
_strip_draw = triton_kernel._strip_draw
_decisions = triton_kernel._decisions


@triton.jit
def table(out, words, entries, step, N: tl.constexpr):
    lane = tl.arange(0, N)
    tl.store(out + lane, _table_draw(tl.load(words + lane), entries, step))


@triton.jit
def strips(
    out, words, guide, settings, ROWS: tl.constexpr, IS_DISCRETE: tl.constexpr, N: tl.constexpr
):
    lane = tl.arange(0, N)
    word, high = tl.load(words + lane), tl.load(words + (ROWS // 2) * N + lane)
    rest = tl.load(words + (ROWS - 1) * N + lane)
    length, half, fine = tl.load(settings), tl.load(settings + 1), tl.load(settings + 2)
    tl.store(out + lane, _strip_draw(word, high, rest, guide, length, half, fine, IS_DISCRETE))


@triton.jit
def decisions(
    out, state, word, words, guide, starts, settings, IS_DISCRETE: tl.constexpr, N: tl.constexpr
):
    lane = tl.arange(0, N)
    block = (
        tl.load(words + lane), tl.load(words + N + lane),
        tl.load(words + 2 * N + lane), tl.load(words + 3 * N + lane),
        tl.load(words + 4 * N + lane), tl.load(words + 5 * N + lane),
        tl.load(words + 6 * N + lane), tl.load(words + 7 * N + lane),
        tl.load(words + 8 * N + lane), tl.load(words + 9 * N + lane),
        tl.load(words + 10 * N + lane), tl.load(words + 11 * N + lane),
        tl.load(words + 12 * N + lane), tl.load(words + 13 * N + lane),
        tl.load(words + 14 * N + lane), tl.load(words + 15 * N + lane),
    )  # fmt: skip
    result, s0, s1, s2, s3 = _decisions(
        tl.load(word + lane), block, guide, starts, settings, IS_DISCRETE
    )
    tl.store(out + lane, result)
    tl.store(state + lane, s0)
    tl.store(state + N + lane, s1)
    tl.store(state + 2 * N + lane, s2)
    tl.store(state + 3 * N + lane, s3)
