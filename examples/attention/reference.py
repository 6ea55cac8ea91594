"""Compute attention in NumPy, in double precision and with whole score matrices, to compare kernels
with."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rule:
    """Holds scale, mask and bias. The window counts visible keys left and right of the diagonal;
    None means no limit."""

    scale: float
    left: int | None = None
    right: int | None = None
    alibi_slopes: Array | None = None  # one per query head

    def scores(self, q: Array, k: Array, head: int) -> Array:
        """Return the masked scores of one head; rows and keys are aligned at their ends."""
        rows, keys = q.shape[0], k.shape[0]
        distance = np.arange(keys)[None, :] - (np.arange(rows)[:, None] + keys - rows)
        scores: Array = self.scale * (q @ k.T)
        if self.alibi_slopes is not None:
            scores = scores - self.alibi_slopes[head] * np.abs(distance)
        hidden = np.zeros_like(distance, dtype=bool)
        if self.left is not None:
            hidden |= distance < -self.left
        if self.right is not None:
            hidden |= distance > self.right
        scores[hidden] = -np.inf
        return scores


def _log_sum_exp(scores: Array) -> Array:
    """Return the logarithms of the sums, which are -inf for a row that sees no key."""
    largest = np.max(scores, axis=1, initial=-np.inf)
    base = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        lse: Array = base + np.log(np.sum(np.exp(scores - base[:, None]), axis=1))
    return lse


def _probabilities(scores: Array) -> Array:
    lse = _log_sum_exp(scores)
    return np.exp(scores - np.where(np.isfinite(lse), lse, 0.0)[:, None])


def forward(q: Array, k: Array, v: Array, rule: Rule) -> tuple[Array, Array]:
    """Compute one sequence: q is [rows, heads, d], k and v are [keys, heads_k, d]. Return out, with
    the shape of q, and lse, [heads, rows]."""
    group = q.shape[1] // k.shape[1]
    out = np.zeros_like(q)
    lse = np.zeros((q.shape[1], q.shape[0]))
    for head in range(q.shape[1]):
        scores = rule.scores(q[:, head], k[:, head // group], head)
        out[:, head] = _probabilities(scores) @ v[:, head // group]
        lse[head] = _log_sum_exp(scores)
    return out, lse


def backward(q: Array, k: Array, v: Array, dout: Array, rule: Rule) -> tuple[Array, Array, Array]:
    """Return the gradients dq, dk, dv of one sequence."""
    group = q.shape[1] // k.shape[1]
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for head in range(q.shape[1]):
        head_k = head // group
        p = _probabilities(rule.scores(q[:, head], k[:, head_k], head))
        dp = dout[:, head] @ v[:, head_k].T
        ds = rule.scale * p * (dp - np.sum(p * dp, axis=1, keepdims=True))
        dq[:, head] = ds @ k[:, head_k]
        dk[:, head_k] += ds.T @ q[:, head]
        dv[:, head_k] += p.T @ dout[:, head]
    return dq, dk, dv


def to_bfloat16(values: npt.NDArray[np.floating]) -> npt.NDArray[np.uint16]:
    """Return the bits of floats as bfloat16, rounded to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)
