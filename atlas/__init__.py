"""OpenModelAtlas: structure, mathematics, source and live numbers of language models, as one checked thing."""

__version__ = "0.1.0"
