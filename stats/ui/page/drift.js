// Drift of each version against its reference: how significant, how large, since when, and where.

import { h } from "./dom.js";
import { spark } from "./charts.js";
import { clock, colour, number, percent, statistic, version } from "./words.js";

const RATIO_SHOWN = 4; // of the threshold; what is beyond ends there
const PSI_SHOWN = 0.4;

/** The section; empty if nothing is compared. */
export function drift(view, it) {
  if (!it.drift.length) return null;
  return h("section", { key: "drift", id: "drift", "aria-labelledby": "drift-title" },
    h("h2", { id: "drift-title" }, "Drift"),
    it.drift.map((one) => ofVersion(view, one)));
}

function ofVersion(view, one) {
  return h("div", { key: one.version, class: "of-version" },
    h("h3", {}, h("i", { class: `swatch v${colour(one.version)}` }), version(one.version),
      h("small", {}, against(view, one))),
    one.statistics.length > 0 && h("div", {
      class: "scroll", tabindex: "0", role: "group", "aria-label": `Drift of ${version(one.version)}`,
    }, h("table", { class: "drift" },
      h("thead", {}, h("tr", {}, [
        ["statistic", ""], ["says", ""],
        ["evidence", "chi-square over its threshold: above 1 it is significant"],
        ["size", "PSI: from 0.1 it matters, from 0.2 it alarms"],
        ["evidence over time", ""], ["reference (grey) and now", ""],
      ].map(([name, hint]) => h("th", { key: name, scope: "col", title: hint || null }, name)))),
      h("tbody", {}, one.statistics.map((row) => line(one, row))))));
}

function against(view, one) {
  if (one.kind === "none") return "no reference yet: its package has no profile, and its first day of traffic becomes one";
  const what = one.kind === "traffic" ? "its own first day of traffic" : "the profile of its evaluation texts";
  const words = [`against ${what} (${number(one.reference_texts)} texts${one.source ? `, ${one.source}` : ""})`];
  if (one.calibration < 1) words.push(`learning what is normal: ${percent(one.calibration)} of a day seen; nobody is alarmed before`);
  if (one.learns_time) words.push("what is usual at this time of the week is still being learnt");
  if (one.at !== null) words.push(`${number(one.texts)} texts until ${clock(one.at, view.now)}`);
  return words.join(" · ");
}

function line(one, row) {
  const [word, tone] = says(row);
  return h("tr", { key: row.statistic },
    h("th", { scope: "row" }, statistic(row.statistic)),
    h("td", { class: `says tone-${tone}` }, h("i", { class: "dot" }), word),
    h("td", {}, gauge(row.ratio, RATIO_SHOWN, [1], tone, monitors(row))),
    h("td", {}, gauge(row.psi, PSI_SHOWN, [0.1, 0.2], tone, monitors(row))),
    h("td", {}, spark(row.ratios, `tone-${tone}`, 1)),
    h("td", {}, bins(row)));
}

function says(row) {
  const usual = row.statistic.startsWith("week:")
    || ["topics", "vectors"].includes(row.statistic);
  if (usual && row.level === 1) return ["unusual", "warn"];
  if (row.alarm) return ["alarm", "bad"];
  if (row.level === 2) return row.calibrated ? ["large", "bad"] : ["large, still learning", "warn"];
  if (row.level === 1) return ["small", "warn"];
  if (row.ratio > 1) return ["real, too small to matter", "quiet"];
  return ["quiet", "quiet"];
}

function monitors(row) {
  return row.monitors.map((one) => {
    const memory = one.weight === 1 ? "the last window" : `about ${number(1 / one.weight)} windows`;
    return `${memory}: ${number(one.ratio)} of the threshold, PSI ${number(one.psi)}`;
  }).join("\n");
}

/** A bar with the lines that matter. */
function gauge(value, shown, limits, tone, title) {
  const share = (one) => `${Math.min(100, (100 * one) / shown)}%`;
  return h("div", { class: `gauge tone-${tone}`, title },
    h("span", { class: "track" },
      h("i", { key: "bar", class: "bar", style: { width: share(value) } }),
      limits.map((limit) => h("i", { key: limit, class: "limit", style: { left: share(limit) } }))),
    h("b", {}, number(value)));
}

/** Share of each bin in the reference and now. */
function bins(row) {
  if (!row.bins.length) return "–";
  const top = Math.max(...row.reference, ...row.now, 1e-9);
  const width = 100 / row.bins.length;
  const said = row.bins.map((name, i) => `${name}: ${percent(row.reference[i])}, now ${percent(row.now[i])}`);
  const bar = (css, share, i, inset) => h("rect", {
    key: `${css}${i}`, class: css, x: i * width + width * inset, width: width * (1 - 2 * inset),
    y: 100 - (100 * share) / top, height: (100 * share) / top,
  });
  return h("svg", {
    class: "bins", viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img",
    "aria-label": said.join("; "),
  }, h("title", {}, said.join("\n")),
  row.reference.map((share, i) => bar("reference", share, i, 0.06)),
  row.now.map((share, i) => bar("now", share, i, 0.28)));
}
