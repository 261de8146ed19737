"""One module per publisher: names, dates, lineage, and where each configuration is cited."""
