"""OpenModelAtlas: structure, mathematics, source and live numbers of language models, checked by running."""

__version__ = "0.1.0"
