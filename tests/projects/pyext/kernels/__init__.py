from ._C import scale as scale
