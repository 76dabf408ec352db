// Figures and times as people read them. A value that is not known is a dash, never a zero.

export const NONE = "–";

/** Three digits or so: 1,234 · 56.7 · 0.0123. */
export function number(value) {
  if (value === null || value === undefined) return NONE;
  const size = Math.abs(value);
  if (size >= 1000 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  if (size >= 1) return String(Number(value.toPrecision(3)));
  return size === 0 ? "0" : String(Number(value.toPrecision(2)));
}

/** A share as percent. */
export function percent(value) {
  if (value === null || value === undefined) return NONE;
  const hundred = value * 100;
  if (hundred === 0) return "0 %";
  if (Math.abs(hundred) < 0.01) return "< 0.01 %";
  return `${Number(Math.abs(hundred) >= 10 ? hundred.toFixed(1) : hundred.toPrecision(2))} %`;
}

/** Seconds as µs, ms or s. */
export function duration(value) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "0";
  if (value < 0.001) return `${number(value * 1e6)} µs`;
  return value < 1 ? `${number(value * 1000)} ms` : `${number(value)} s`;
}

/** A number of a second. */
export function rate(value) {
  return value === null || value === undefined ? NONE : `${number(value)}/s`;
}

/** A span of time in its largest two units: 1 h 5 min. */
export function span(seconds) {
  let left = Math.max(0, Math.round(seconds));
  const words = [];
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0) words.push(`${count} ${unit}`);
    if (words.length === 2) break;
  }
  return words.join(" ") || "0 s";
}

/** The time of day, in the reader's own zone; with the date if it is another day than `now`. */
export function clock(at, now, withSeconds = true) {
  const moment = new Date(at * 1000);
  const time = moment.toLocaleTimeString("en-GB", {
    hour: "2-digit", minute: "2-digit", ...(withSeconds ? { second: "2-digit" } : {}),
  });
  if (new Date(now * 1000).toDateString() === moment.toDateString()) return time;
  return `${moment.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

/** RolledBack as Rolled back. */
export function phase(name) {
  const spaced = name.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  return spaced.charAt(0).toUpperCase() + spaced.slice(1);
}

/** A version for people. */
export function version(name) {
  return /^\d+$/.test(name) ? `v${name}` : name;
}

/** tokens_per_word as tokens per word; what users named stays as it is. */
export function statistic(name) {
  if (name.startsWith("week:")) return `${statistic(name.slice(5))}, for this time of the week`;
  return name.startsWith("own:") ? name.slice(4) : name.replaceAll("_", " ").replace(/\bunk\b/, "UNK");
}

/** Which of the palette's colours a version has: always the same one, in every chart. */
export function colour(name) {
  if (/^\d+$/.test(name)) return Number(name) % 6;
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) % 997;
  return sum % 6;
}

/** An estimated accuracy with its 95 % interval. */
export function estimate(one) {
  return `${percent(one.estimated)} (${percent(one.low)} to ${percent(one.high)})`;
}
