"""The command line's larger groups, one module each: parse, call one function, print."""
