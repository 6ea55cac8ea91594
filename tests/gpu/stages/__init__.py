"""List the stages in the order of their worth. Each module defines one, as `STAGE`."""

CUDA = (
    "attention",
    "flash_attn",
    "ggml",
    "handles",
    "host_units",
    "graphs",
    "errors",
    "archs",
    "extensions",
    "torch_graphs",
    "steady",
    "sanitizer",
    "flash_tests",
)
HIP = ("attention", "composable_kernel")
