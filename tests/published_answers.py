"""What is asked of a published site and of a server alike: addresses below a run's tensors, by the kind of answer."""

from __future__ import annotations

A = "blocks/attention/"
WEIGHTS = f"{A}attention-weights"
UPDATE = f"{A}attention-update"
CACHE = f"{A}key-cache"
LOGITS = "unembedding/logits"

PLANES = [
    f"{WEIGHTS}/tile?view=full&layer=3&slice=0,1,:,:&row_level=1&column_level=2",
    f"{WEIGHTS}/tile?view=full&layer=3&slice=0,1,:,:&transpose=true&column_level=1&reduce=mean",
    f"{WEIGHTS}/tile?view=full&layer=3&slice=0,:,4,:&reduce=min&row_level=3",
    f"{WEIGHTS}/tile?view=decode&layer=9&step=5&slice=0,2,0,:",
    f"{WEIGHTS}/tile?view=decode&layer=9&step=5&slice=0,2,0,:&transpose=true",
    f"{WEIGHTS}/thumbnails?view=full&layer=1&slice=0,:,:,:&over=q_heads&side=5",
    f"{WEIGHTS}/thumbnails?view=full&layer=1&slice=0,:,:,:&over=queries&side=4&transpose=true&reduce=max",
    f"{LOGITS}/tile?view=full&slice=0,:,:&row_level=0&column_level=6&tile_column=1",
    f"{LOGITS}/tile?view=full&slice=0,:,:&column_level=3&tile_column=11&reduce=max",
    f"{LOGITS}/tile?view=full&slice=0,:,:&row_level=2&column_level=9",
    f"{LOGITS}/tile?view=full&slice=0,:,:&tile_column=191",
    "rotary/rotations/tile?view=full&slice=:,:&part=magnitude&column_level=2",
    "rotary/rotations/tile?view=full&slice=:,:&part=imaginary&transpose=true",
    "token-ids/tile?view=full&slice=0,:&column_level=2",
    "final-norm/gain/tile?slice=:&column_level=1&tile_column=1",
    f"{UPDATE}/tile?view=decode&layer=5&step=3&slice=0,:,:&against_view=full&column_level=1",
    f"{UPDATE}/tile?view=full&layer=5&slice=0,:,:&against_layer=6&transpose=true&reduce=mean&row_level=2",
    f"{CACHE}/tile?view=decode&layer=5&step=7&slice=0,:,1,:&against_step=2",
    f"{A}masked-similarities/tile?view=full&layer=1&slice=0,3,:,:&against_view=prefill",
    "rotary/rotations/tile?view=full&slice=:,:&against_view=prefill&part=imaginary",
    f"{WEIGHTS}/thumbnails?view=full&layer=1&slice=0,:,:,:&over=q_heads&side=5&against_layer=2",
]
"""Numbers in bytes."""

ANSWERS = [
    f"{WEIGHTS}?view=decode&layer=3&step=2",
    f"{WEIGHTS}/cell?view=full&layer=7&slice=0,4,9,0:9&pick=absmax&along=keys",
    f"{WEIGHTS}/cell?view=full&layer=7&slice=0,-5,-1,2&against_layer=8",
    f"{WEIGHTS}/top?view=full&layer=7&slice=0,4,9,:&count=5",
    f"{WEIGHTS}/heads?view=prefill&layer=2",
    f"{LOGITS}/top?view=prefill&slice=0,4,:&count=7",
    f"{LOGITS}/predictions?view=prefill&start=2&stop=4&count=3",
    f"{LOGITS}/predictions?view=full&stop=6&count=2",
    f"{LOGITS}/cell?view=full&slice=0,12,49151",
    "token-ids/cell?view=full&slice=0,3",
    "final-norm/gain?checks=all",
]
"""JSON."""

COMPARED = [
    f"{UPDATE}/difference?view=decode&layer=5&step=3&against_view=full",
    f"{UPDATE}/difference?view=decode&layer=5&step=3&against_step=6",
    f"{UPDATE}/difference?view=full&layer=5&against_view=decode&against_step=2",
    f"{UPDATE}/difference?view=full&layer=5&against_layer=9",
    f"{CACHE}/difference?view=decode&layer=5&step=3&against_step=6",
    f"{CACHE}/difference?view=prefill&layer=5&against_view=full",
    f"{WEIGHTS}/difference?view=decode&layer=4&step=6&against_step=2",
    f"{WEIGHTS}/difference?view=full&layer=4&against_layer=5",
    f"{A}masked-similarities/difference?view=full&layer=1&against_view=prefill",
    f"{A}masked-similarities/difference?view=full&layer=1&against_layer=2",
    f"{LOGITS}/difference?view=prefill&against_view=full",
    f"{LOGITS}/difference?view=full&against_view=full",
    "rotary/rotations/difference?view=full&against_view=prefill",
    "token-ids/difference?view=full&against_view=prefill",
    "final-norm/reciprocal-rms/difference?view=full&against_view=decode&against_step=4",
    f"{UPDATE}/profile?view=full&layer=5&along=positions&against_layer=6",
    f"{UPDATE}/profile?view=prefill&layer=5&along=d_model&measure=mean",
    f"{UPDATE}/agreement?layer=5",
    f"{CACHE}/agreement?layer=2",
    f"{WEIGHTS}/agreement?layer=3",
    f"{LOGITS}/agreement",
]
"""JSON with numbers that sums make, in whatever order they are summed."""

REFUSED = [
    f"{UPDATE}/difference?view=prefill&layer=5&against_view=decode&against_step=3",
    f"{UPDATE}/difference?view=full&layer=5",
    f"{UPDATE}/tile?view=full&layer=5&slice=0,:,:&part=angle",
    f"{UPDATE}/tile?view=full&layer=5&slice=:,:,:",
    f"{UPDATE}/tile?view=full&layer=5&slice=0,:,:&row_level=9",
    f"{UPDATE}/tile?view=full&layer=5&slice=0,:,:&tile_column=3",
    f"{UPDATE}/cell?view=full&layer=5&slice=0,99,:",
    f"{UPDATE}/cell?view=full&layer=5&slice=0,3:3,:",
    f"{UPDATE}/cell?view=full&layer=5&slice=0,1:99,:",
    f"{UPDATE}/cell?view=full&layer=5&slice=0,x,:",
    f"{UPDATE}/cell?view=full&layer=5&slice=0,1,2,3",
    f"{UPDATE}/cell?view=full&layer=5&slice=0,1,:",
    f"{UPDATE}/profile?view=full&layer=5&along=keys",
    f"{WEIGHTS}/thumbnails?view=full&layer=1&slice=0,:,:,:&over=nobody",
    f"{WEIGHTS}/thumbnails?view=full&layer=1&slice=0,1,:,:&over=q_heads",
    f"{WEIGHTS}/top?view=full&layer=7&slice=0,4,:,:",
    f"{LOGITS}/predictions?view=prefill&start=2&stop=40",
]
"""What cannot be: with the reason and what would do."""
