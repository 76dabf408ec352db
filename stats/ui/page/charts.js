// Charts over time. Everything is in shares of the area it fills, so nothing depends on its pixels:
// lines are SVG stretched to the area, heatmaps are one canvas pixel a cell.

import { h } from "./dom.js";
import { NONE, clock } from "./words.js";

const TICKS = 4;
const TIME_STEPS = [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** The time axis that charts share: columns of equal length. */
export function timeAxis(columns, now, marks = []) {
  const { start, seconds, count } = columns;
  return axis(start, start + seconds * count, now, marks,
    Array.from({ length: count }, (_, i) => (i + 0.5) / count),
    (i) => `${clock(start + i * seconds, now)} – ${clock(start + (i + 1) * seconds, now)}`);
}

/** A time axis of points that lie anywhere. */
export function pointAxis(times, start, end, now, marks = []) {
  const width = Math.max(1, end - start);
  return axis(start, end, now, marks, times.map((at) => (at - start) / width),
    (i) => clock(times[i], now));
}

function axis(start, end, now, marks, places, name) {
  const width = Math.max(1, end - start);
  // With seconds a time is twice as wide.
  const step = TIME_STEPS.find((size) => width / size <= (size < 60 ? 2.5 : 5))
    ?? 86400 * Math.ceil(width / 86400 / 5);
  const ticks = [];
  for (let at = Math.ceil(start / step) * step; at <= end; at += step) {
    const place = (at - start) / width;
    const air = step < 60 ? 0.16 : 0.05;
    if (place > air && place < 1 - air) ticks.push({ place, name: clock(at, now, step < 60) });
  }
  const inside = marks.filter((mark) => mark.at >= start && mark.at <= end)
    .map((mark) => ({ ...mark, place: (mark.at - start) / width }));
  return { start, end, width, places, name, ticks, marks: inside };
}

/** Lines: series of {name, css, values}; `format` writes a value; `least` is the smallest top. */
export function lines({ key, title, hint, axis: x, series, format, least = 0 }) {
  const values = series.flatMap((one) => one.values).filter((value) => value !== null);
  const top = ceiling(Math.max(least, ...values));
  const drawn = series.map((one) => h("path", {
    key: one.name, class: `line ${one.css}`, d: path(one.values, x.places, top),
  }));
  const hover = (place) => {
    const at = nearest(x.places, place);
    if (at < 0) return null;
    const rows = series.map((one) => ({
      css: one.css, name: one.name, value: one.values[at] === null ? NONE : format(one.values[at]),
    }));
    return { place: x.places[at], head: x.name(at), rows, marks: marksNear(x, at) };
  };
  return figure(key, title, hint, plot({
    x, hover, label: said(title, series, format), empty: values.length === 0,
    ticks: [0, 1, 2, 3, 4].filter((i) => i % 2 === 0)
      .map((i) => ({ place: i / TICKS, name: format((top * i) / TICKS) })),
    inside: h("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" },
      [0, 0.5, 1].map((at) => h("path", { key: at, class: "grid", d: `M0 ${100 - at * 100}H100` })),
      drawn),
  }));
}

/** A heatmap: share of each column's counts by colour. */
export function heatmap({ key, title, hint, axis: x, map, format, wide = false }) {
  const { upper, counts, names } = map;
  const totals = counts.map((column) => column.reduce((sum, count) => sum + count, 0));
  const most = Math.max(1e-9, ...counts.map((column, i) => Math.max(...column) / (totals[i] || 1)));
  const hover = (place, height) => {
    const at = nearest(x.places, place);
    if (at < 0 || totals[at] === 0) {
      return at < 0 ? null : { place: x.places[at], head: x.name(at), rows: [], note: "nothing" };
    }
    const row = Math.min(upper.length - 1, Math.max(0, Math.floor(height * upper.length)));
    const count = counts[at][row];
    const rows = [
      { name: between(map, row, format), value: `${((100 * count) / totals[at]).toFixed(1)} %` },
      { name: "counted", value: `${count.toLocaleString("en")} of ${totals[at].toLocaleString("en")}` },
    ];
    return { place: x.places[at], height: (row + 0.5) / upper.length, head: x.name(at), rows };
  };
  return figure(key, title, hint, plot({
    x, hover, label: `${title}: heatmap over time`, empty: totals.every((sum) => sum === 0),
    ticks: rowTicks(upper).map((row) => (names.length
      ? { place: (row + 0.5) / upper.length, name: names[row] }
      : { place: (row + 1) / upper.length, name: format(upper[row]) })),
    inside: h("canvas", { draw: (canvas) => paint(canvas, counts, totals, most), "aria-hidden": "true" }),
  }), wide);
}

/** A line without axes, for tables and lists. */
export function spark(values, css, limit = null) {
  // A figure that comes once in a few columns is one line all the same.
  const known = values.filter((value) => value !== null);
  const top = ceiling(Math.max(limit === null ? 0 : limit * 1.5, ...known));
  const places = values.map((_, i) => (i + 0.5) / values.length);
  return h("svg", { class: "spark", viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" },
    limit !== null && h("path", { key: "limit", class: "limit", d: `M0 ${y(limit, top)}H100` }),
    h("path", { key: "line", class: `line ${css}`, d: path(...joined(values, places), top) }));
}

function joined(values, places) {
  const kept = values.map((value, i) => [value, places[i]]).filter(([value]) => value !== null);
  return [kept.map(([value]) => value), kept.map(([, place]) => place)];
}

/** What is drawn over time, in one frame with axes, marks and a shared cursor. */
export function plot({ x, ticks, inside, hover, label, empty }) {
  return h("div", { class: "plot" },
    h("div", { class: "y", "aria-hidden": "true" }, ticks.map((tick) =>
      h("span", { key: tick.place, style: { bottom: `${tick.place * 100}%` } }, tick.name))),
    h("div", { class: empty ? "area empty" : "area", tabindex: "0", role: "img", "aria-label": label, hover },
      inside,
      x.marks.map((mark) => h("i", {
        key: `${mark.at} ${mark.name}`, class: `mark ${mark.css ?? ""}`,
        style: { left: `${mark.place * 100}%` },
      })),
      h("i", { key: "cursor", class: "cursor" }),
      empty && h("span", { key: "none", class: "none" }, "nothing counted in this time")),
    h("div", { class: "x", "aria-hidden": "true" }, x.ticks.map((tick) =>
      h("span", { key: tick.place, style: { left: `${tick.place * 100}%` } }, tick.name))));
}

export function figure(key, title, hint, inside, wide = false) {
  return h("figure", { key, class: wide ? "wide" : null },
    h("figcaption", { title: hint ?? title }, title), inside);
}

/** What the lines' colours mean, once for all charts of a section. */
export function legend(series) {
  return h("span", { class: "legend" }, series.map((one) =>
    h("span", { key: one.name }, h("i", { class: `swatch ${one.css}` }), one.name)));
}

function said(title, series, format) {
  const now = series.map((one) => {
    const known = one.values.filter((value) => value !== null);
    return known.length ? `${one.name} ${format(known.at(-1))}` : `${one.name} unknown`;
  });
  return `${title}, last: ${now.join("; ") || "nothing counted"}. Arrow keys tell figures.`;
}

function path(values, places, top) {
  let drawn = "", down = false;
  values.forEach((value, i) => {
    if (value === null) { down = false; return; }
    drawn += `${down ? "L" : "M"}${(places[i] * 100).toFixed(2)} ${y(value, top)}`;
    if (!down) drawn += "h.01"; // a point with nothing beside it is a dot
    down = true;
  });
  return drawn;
}

function y(value, top) {
  return (100 - (100 * Math.min(value, top)) / top).toFixed(2);
}

/** The next round number with four round parts. */
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const scale = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 8, 10].find((step) => value <= step * scale * 1.000001) * scale;
}

function nearest(places, place) {
  let best = -1;
  places.forEach((at, i) => {
    if (best < 0 || Math.abs(at - place) < Math.abs(places[best] - place)) best = i;
  });
  return best;
}

function marksNear(x, at) {
  const reach = 1.5 / Math.max(30, x.places.length);
  return x.marks.filter((mark) => Math.abs(mark.place - x.places[at]) < reach)
    .map((mark) => mark.name);
}

function rowTicks(upper) {
  const every = Math.max(1, Math.ceil(upper.length / 5));
  return upper.map((_, row) => row).filter((row) => (upper.length - 1 - row) % every === 0);
}

function between({ lower, upper, names }, row, format) {
  if (names.length) return names[row];
  const below = row === 0 ? lower : upper[row - 1];
  if (row > 0 && upper[row] === upper[row - 1]) return `above ${format(upper[row])}`;
  return below === null ? `up to ${format(upper[row])}` : `${format(below)} – ${format(upper[row])}`;
}

function paint(canvas, counts, totals, most) {
  const columns = counts.length, rows = counts[0]?.length ?? 0;
  if (!columns || !rows) return;
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
  }
  const style = getComputedStyle(canvas);
  const stops = ["--heat-0", "--heat-1", "--heat-2"].map((name) => rgb(style.getPropertyValue(name)));
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  counts.forEach((column, x) => column.forEach((count, row) => {
    if (count === 0) return;
    const share = Math.sqrt(count / totals[x] / most) * 0.92 + 0.08;
    const [from, to, part] = share < 0.5
      ? [stops[0], stops[1], share * 2] : [stops[1], stops[2], share * 2 - 1];
    const at = 4 * ((rows - 1 - row) * columns + x);
    for (let i = 0; i < 3; i += 1) image.data[at + i] = from[i] + (to[i] - from[i]) * part;
    image.data[at + 3] = 255;
  }));
  context.putImageData(image, 0, 0);
}

function rgb(hex) {
  const digits = hex.trim().slice(1);
  return [0, 2, 4].map((i) => Number.parseInt(digits.slice(i, i + 2), 16));
}
