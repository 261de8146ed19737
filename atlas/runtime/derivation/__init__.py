"""Code that nobody has described, described by running it: from a model of transformers to a graph.

`statements` says where in a file values come to be, `observer` runs the model and watches them, `observation` puts in
order what was seen, `sizes` names numbers and `wording` the rest, `graph` makes nodes and edges of it, and `draft`
prints the beginning of a declaration. `derive` does all but the last.
"""
