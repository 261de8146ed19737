"""Where facts come from: locks, the source store, anchors and excerpts. Knows nothing of tensors or pages."""
