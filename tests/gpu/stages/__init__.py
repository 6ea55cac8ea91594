"""The stages, in the order of their worth: each module has one, `STAGE`."""

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
