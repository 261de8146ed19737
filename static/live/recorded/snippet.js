// A few lines of Python that load a recorded tensor from the files of a published site, with numpy alone: where its
// pieces lie is read from the index of its node, and what a piece is like from `inspection/recorded/blocks.py`.

import { tiling } from "./blocks.js";

const KINDS = { float32: "<f4", float64: "<f8", float16: "<f2", bfloat16: "<u2", int64: "<i8", int32: "<i4", bool: "?", complex64: "<c8" };
const WIDTHS = { "<f4": 4, "<f8": 8, "<f2": 2, "<u2": 2, "<i8": 8, "<i4": 4, "?": 1, "<c8": 8 };

const python = value => (value === null ? "None" : String(value));

/** The lines; `said` is the last one. */
export function recordedSnippet({ address, shelf, node, at, dtype, shape }, said) {
  const kind = KINDS[dtype];
  const name = `${shelf}/${node.replaceAll("/", ".")}`;
  const numbers = `np.ascontiguousarray(lanes.T).view("${kind}").ravel()`;
  return [
    "import json", "import urllib.request", "import zlib", "", "import numpy as np", "",
    `run = "${address}"`, "", "",
    "def read(name):", "    return urllib.request.urlopen(run + name).read()", "", "",
    `index = json.loads(read("index/${name}.json"))`,
    `held = next(one for one in index["tensors"] if (one["layer"], one["step"]) == (${python(at.layer)}, ${python(at.step)}))`,
    `sheets = {number: read(f"sheets/${name}.{number}.bin") for number in {piece["sheet"] for piece in held["tiles"]}}`,
    "tiles = []",
    'for piece in held["tiles"]:  # deflated, its bytes sorted by significance',
    '    packed = sheets[piece["sheet"]][piece["at"] : piece["at"] + piece["size"]]',
    `    lanes = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(${WIDTHS[kind]}, -1)`,
    dtype === "bfloat16" ? `    tiles.append((${numbers}.astype("<u4") << 16).view("<f4"))  # bfloat16` : `    tiles.append(${numbers})`,
    ...joined(shape, dtype === "bfloat16" ? "<f4" : kind),
    said,
  ].join("\n");
}

/** Tiles of whole planes follow each other; those of a large plane are laid out. */
function joined(shape, kind) {
  const { planes, rows, columns, tall, wide } = tiling(shape);
  const whole = `.reshape(${shape.join(", ") || "()"})`;
  if (tall === rows && wide === columns) return [`tensor = np.concatenate(tiles)${whole}`];
  return [
    `tensor = np.empty((${planes}, ${rows}, ${columns}), "${kind}")`,
    `places = [(p, r, c) for p in range(${planes}) for r in range(0, ${rows}, ${tall}) for c in range(0, ${columns}, ${wide})]`,
    "for (p, r, c), tile in zip(places, tiles, strict=True):",
    `    part = tensor[p, r : r + ${tall}, c : c + ${wide}]`,
    "    part[...] = tile.reshape(part.shape)",
    `tensor = tensor${whole}`,
  ];
}
