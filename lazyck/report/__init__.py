"""`lazyck report`: what compiling lazily cost and saved, as one HTML page.

`gather` reads, `figures` decides, `page` renders.
"""
