"""From a captured tensor to what a person sees: statistics, slices, checks."""
