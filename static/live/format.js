// Numbers and tokens as text. Knows nothing of the page.

/** The shortest decimal that reads back to the same number of a dtype; `nan`, `inf`, `-inf` as numpy writes them. */
export function shortest(value, dtype = "float32") {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (/64$|^u?int|bool/.test(dtype) && dtype !== "complex64") return withPoint(String(value), dtype);
  for (let digits = 1; digits <= 9; digits++) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === value) return withPoint(String(Number(text)), dtype);
  }
  return withPoint(String(value), dtype);
}

function withPoint(text, dtype) {
  return /int|bool/.test(dtype) || /[.e]/.test(text) ? text : `${text}.0`;
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
