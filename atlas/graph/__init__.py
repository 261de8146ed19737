"""The language in which an architecture is described: axes, nodes, evidence, and their resolution.

Knows nothing of files, of torch, or of the web. Every room above speaks this language.
"""
