// Numbers and tokens as text. Knows nothing of the page.

/** The shortest decimal that reads back to the same number of a dtype, as numpy writes it; `nan`, `inf`, `-inf` too. */
export function shortest(value, dtype = "float32") {
  if (dtype === "bool") return value ? "True" : "False";
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (/^u?int/.test(dtype)) return String(value);
  if (dtype === "float64" || Object.is(value, -0)) return written(value);
  const near = dtype === "float16" ? halved : Math.fround;
  for (let digits = 1; digits <= 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (near(short) === value) return written(short);
  }
  return written(value);
}

/** A float with its point, or with its exponent where it is very small or large. */
function written(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e16)) return value.toExponential().replace(/e([+-])(\d)$/, "e$10$2");
  const text = Object.is(value, -0) ? "-0" : String(value);
  return text.includes(".") ? text : `${text}.0`;
}

/** The nearest number that float16 has, ties to even. */
export function halved(value) {
  if (!Number.isFinite(value) || value === 0) return value;
  const exponent = Math.max(-14, Math.floor(Math.log2(Math.abs(value))));
  const unit = 2 ** (exponent - 10);
  const steps = value / unit;
  const near = Math.round(steps);
  const rounded = Math.abs(steps - Math.trunc(steps)) === 0.5 && near % 2 ? near - 1 : near;
  return Math.abs(rounded * unit) > 65504 ? Math.sign(value) * Infinity : rounded * unit;
}

/** A number for reading: four significant digits, a true minus sign, the same width for the same size. */
export function readable(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  let text;
  if (size >= 1e5 || size < 1e-3) text = value.toExponential(digits - 1).replace("e+", "e");
  else if (size >= 1000) text = value.toFixed(Math.max(0, digits - 1 - Math.floor(Math.log10(size))));
  else text = value.toPrecision(digits);
  return text.replaceAll("-", "−");
}

/** Whole numbers with separators. */
export function count(value) {
  return value.toLocaleString("en-US");
}

/** A probability as a percentage of two or three digits. */
export function percent(share) {
  const hundred = 100 * share;
  if (hundred >= 99.95) return "100 %";
  if (hundred >= 0.1) return `${hundred.toPrecision(3)} %`;
  if (hundred >= 0.001) return `${Number(hundred.toPrecision(2))} %`;
  return hundred > 0 ? `${hundred.toExponential(0).replace("-", "−")} %` : "0 %";
}

/** A size in bytes. */
export function bytes(size) {
  const [unit, word] = size >= 1e6 ? [1e6, "MB"] : [1e3, "kB"];
  return `${Number((size / unit).toPrecision(2)).toLocaleString("en-US")} ${word}`;
}

/** A token with its white space visible. */
export function visible(label) {
  if (label === "") return "∅";
  return label.replace(/ /g, "␣").replace(/\r\n|\n/g, "⏎").replace(/\t/g, "⇥").replace(/\r/g, "␍");
}

/** "1st", "2nd", "11th". */
export function ordinal(rank) {
  const tail = rank % 100;
  const ends = { 1: "st", 2: "nd", 3: "rd" };
  return `${count(rank)}${tail > 10 && tail < 14 ? "th" : (ends[rank % 10] ?? "th")}`;
}

const ESCAPES = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** A text in quotes, with what cannot be seen escaped: as Python's repr writes it, and the server with it. */
export function quoted(text) {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const hidden = letter => {
    const code = letter.codePointAt(0);
    const [sign, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return `\\${sign}${code.toString(16).padStart(digits, "0")}`;
  };
  const inside = text.replace(/[\\\n\r\t]/g, letter => ESCAPES[letter]).replace(/(?! )[\p{C}\p{Z}]/gu, hidden);
  return mark + inside.replaceAll(mark, `\\${mark}`) + mark;
}
