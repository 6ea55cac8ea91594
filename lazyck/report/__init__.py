"""`lazyck report`: what lazy compilation cost and saved, as one HTML page.

`gather` reads, `figures` decides, `page` renders.
"""
