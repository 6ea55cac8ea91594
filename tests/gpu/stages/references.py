"""Run `python references.py PROJECT`: call kernels of the extension in the working directory. Print
the largest error of each, as a share of what is allowed, as JSON. The references are the project's
own, or plain torch."""

import json
import os
import sys
import types
from collections.abc import Callable, Iterator

import torch

Errors = Iterator[tuple[str, float]]


def error(found: torch.Tensor, expected: torch.Tensor, relative: float, absolute: float) -> float:
    """Return the largest difference as a share of what is allowed, or infinity if a value is not
    finite."""
    difference = (found.float() - expected.float()).abs() / (absolute + relative * expected.float().abs())
    return float(difference.max()) if bool(torch.isfinite(found).all()) else float("inf")


def without_init(package: str) -> None:
    """Make modules of a package importable without its `__init__.py`, which imports every part of
    it."""
    made = types.ModuleType(package)
    made.__path__ = [os.path.abspath(package)]
    sys.modules[package] = made


def mamba() -> Errors:
    """Compare selective scan, forward and backward, with mamba's own reference, within the
    tolerances of its tests."""
    without_init("mamba_ssm")
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn, selective_scan_ref

    torch.manual_seed(1)
    for length in (128, 1024):
        batch, dim, state = 2, 64, 8
        shapes = {"u": (batch, dim, length), "delta": (batch, dim, length), "B": (batch, state, length),
                  "C": (batch, state, length), "z": (batch, dim, length), "D": (dim,)}  # fmt: skip
        made = {name: torch.randn(shape, device="cuda") for name, shape in shapes.items()}
        made["delta"] = 0.5 * made["delta"].abs()
        made["A"] = -0.5 * torch.rand(dim, state, device="cuda")
        results = []
        for function in (selective_scan_fn, selective_scan_ref):
            leaves = {name: value.clone().requires_grad_() for name, value in made.items()}
            out = function(**leaves, delta_softplus=True)
            torch.manual_seed(2)
            out.backward(torch.randn_like(out))
            results.append({"out": out.detach(), **{f"d{name}": leaf.grad for name, leaf in leaves.items()}})
        for name, expected in results[1].items():
            scale = 1 if name == "out" else 5
            yield f"{name} of {length}", error(results[0][name], expected, 6e-4 * scale, 2e-3 * scale)


def gsplat() -> Errors:
    """Compare covariances and spherical harmonics, forward and backward, and the projection with
    gsplat's torch code."""
    without_init("gsplat")
    from gsplat.cuda import _torch_impl, _wrapper

    torch.manual_seed(1)
    count = 1000
    quaternions, scales = torch.randn(count, 4, device="cuda"), 0.1 + torch.rand(count, 3, device="cuda")
    directions, coefficients = torch.randn(count, 3, device="cuda"), torch.randn(count, 16, 3, device="cuda")

    def compare(name: str, ours: Callable[..., object], theirs: Callable[..., object], *inputs: torch.Tensor) -> Errors:
        results = []
        for function in (ours, theirs):
            leaves = [x.clone().requires_grad_() for x in inputs]
            out = function(*leaves)
            first = out[0] if isinstance(out, tuple) else out
            assert isinstance(first, torch.Tensor)
            torch.manual_seed(2)
            results.append([first.detach(), *torch.autograd.grad(first, leaves, torch.randn_like(first))])
        for i, (found, expected) in enumerate(zip(*results, strict=True)):
            yield f"{name} {'gradient' if i else 'out'}", error(found, expected, 1e-2, 1e-2)

    yield from compare(
        "covariances",
        lambda q, s: _wrapper.quat_scale_to_covar_preci(q, s, True, False),
        lambda q, s: _torch_impl._quat_scale_to_covar_preci(q, s, True, False),
        quaternions,
        scales,
    )
    yield from compare(
        "harmonics",
        lambda d, c: _wrapper.spherical_harmonics(3, d, c),
        lambda d, c: _torch_impl._spherical_harmonics(3, d, c),
        directions,
        coefficients,
    )
    means = torch.randn(count, 3, device="cuda") + torch.tensor([0.0, 0.0, 6.0], device="cuda")
    views = torch.eye(4, device="cuda").expand(2, 4, 4).contiguous()
    cameras = torch.tensor([[300.0, 0, 160], [0, 300, 120], [0, 0, 1]], device="cuda").expand(2, 3, 3).contiguous()
    covariances = _torch_impl._quat_scale_to_covar_preci(quaternions, scales, True, False)[0]
    radii, *ours = _wrapper.fully_fused_projection(means, None, quaternions, scales, views, cameras, 320, 240)
    other, *theirs = _torch_impl._fully_fused_projection(means, covariances, views, cameras, 320, 240)
    seen = (radii > 0).all(-1) & (other > 0).all(-1)
    assert int(seen.sum()) > count, "most are in sight"
    for name, found, expected in zip(("centres", "depths", "conics"), ours, theirs, strict=False):
        yield f"projection {name}", error(found[seen], expected[seen], 1e-3, 1e-2)


def exllamav2() -> Errors:
    """Compare with plain torch: a matrix in GPTQ's 4 bits, unpacked and multiplied in both of the
    extension's ways, and RMS norm."""
    import exllamav2_ext as ext

    torch.manual_seed(1)
    height, width, groups = 512, 256, 4
    packed = torch.randint(-(2**31), 2**31 - 1, (height // 8, width), device="cuda", dtype=torch.int32)
    zeros = torch.randint(-(2**31), 2**31 - 1, (groups, width // 8), device="cuda", dtype=torch.int32)
    scales = (0.01 + 0.01 * torch.rand(groups, width, device="cuda")).half()
    shifts = torch.arange(0, 32, 4, device="cuda", dtype=torch.int32)
    values = ((packed[:, None, :] >> shifts[None, :, None]) & 15).reshape(height, width)
    zero = ((zeros[:, :, None] >> shifts) & 15).reshape(groups, width) + 1
    rows = torch.arange(height, device="cuda") // (height // groups)
    plain = (values - zero[rows]).float() * scales[rows].float()
    none, room = torch.empty((1, 1), device="meta"), torch.empty(height * width, device="cuda", dtype=torch.half)
    shuffled = packed.clone()  # a local that keeps the tensor alive, because the matrix holds no reference to it
    matrix = ext.make_q_matrix(shuffled, none, none, none, none, none, zeros, scales, none, room)
    whole = torch.empty(height, width, device="cuda", dtype=torch.half)
    ext.reconstruct(matrix, whole)
    yield "unpacked matrix", error(whole, plain, 2e-3, 1e-3)
    for m in (4, 128):
        a = torch.randn(m, height, device="cuda").half()
        out = torch.zeros(m, width, device="cuda", dtype=torch.half)
        ext.gemm_half_q_half(a, matrix, out, False)
        yield f"product of {m} rows", error(out, a.float() @ plain, 1e-2, 5e-2)
    x, weight = torch.randn(64, 1024, device="cuda").half(), torch.randn(1024, device="cuda").half()
    normed = torch.empty_like(x)
    ext.rms_norm(x, weight, normed, 1e-6)
    exact = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6) * weight.float()
    yield "RMS norm", error(normed, exact, 5e-3, 5e-3)


PROJECTS = {"mamba": mamba, "gsplat": gsplat, "exllamav2": exllamav2}

if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    print(json.dumps(dict(PROJECTS[sys.argv[1]]())))
