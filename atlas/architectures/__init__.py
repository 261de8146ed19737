"""One module per architecture. A module here is found by itself; nothing is registered by hand."""
