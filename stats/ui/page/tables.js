// The tables of an endpoint: arms side by side, versions, history.

import { h } from "./dom.js";
import { NONE, clock, colour, duration, number, percent, phase, version } from "./words.js";

const STAGES = ["queue", "tokenise", "wait", "infer"];

/** What the colours of stages mean. */
export function stageKey() {
  return h("span", { class: "key" }, STAGES.map((name) => [h("i", { key: name, class: `stage-${name}` }), name]));
}

/** Every arm over the whole span. */
export function arms(it) {
  const columns = [
    ["requests", (one) => number(one.totals.requests)],
    ["errors", (one) => percent(one.totals.errors)],
    ["median", (one) => duration(one.totals.p50)],
    ["p95", (one) => duration(one.totals.p95)],
    ["p99", (one) => duration(one.totals.p99)],
    ["tokens a text", (one) => number(one.totals.tokens)],
    ["UNK", (one) => percent(one.totals.unk)],
    ["tokens a word", (one) => number(one.totals.tokens_per_word)],
    ["truncated", (one) => percent(one.totals.truncated)],
    ["accuracy", (one) => accuracy(one, it.accuracy)],
    ["agreement", (one) => percent(one.totals.agreement)],
  ].filter(([name]) => name !== "agreement" || it.series.some((one) => one.totals.agreement !== null));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-labelledby": "arms-title" },
    h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "arm"),
        columns.map(([name]) => h("th", { key: name, scope: "col", class: "n" }, name)),
        h("th", { scope: "col" }, "where the time goes"))),
      h("tbody", {}, it.series.map((one) => h("tr", { key: `${one.version} ${one.arm}` },
        h("th", { scope: "row" }, h("i", { class: `swatch v${colour(one.version)} arm-${one.arm}` }),
          `${version(one.version)} ${one.arm}`),
        columns.map(([name, value]) => h("td", { key: name, class: "n" }, value(one))),
        h("td", {}, stages(one.stages)))))));
}

function accuracy(one, known) {
  const { accuracy: measured, judged } = one.totals;
  const found = known.find((item) => item.version === one.version && item.arm === one.arm);
  const words = [];
  if (measured !== null) words.push(h("span", { key: "measured" }, `${percent(measured)} of ${number(judged)}`));
  if (found?.estimated != null) {
    words.push(h("small", { key: "estimated", title: "estimated from scores, with its 95 % interval" },
      `est. ${percent(found.estimated)}`, h("br"), `${percent(found.low)} to ${percent(found.high)}`));
  }
  return words.length ? words : NONE;
}

function stages(means) {
  const parts = STAGES.map((name) => [name, means[name] ?? 0]);
  const whole = parts.reduce((sum, [, value]) => sum + value, 0);
  if (!whole) return NONE;
  const said = parts.map(([name, value]) => `${name} ${duration(value / 1000)}`).join(", ");
  return h("div", { class: "stages", role: "img", "aria-label": `Mean: ${said}`, title: said },
    parts.map(([name, value]) => h("i", {
      key: name, class: `stage-${name}`, style: { width: `${(100 * value) / whole}%` },
    })));
}

/** Every version that is known, newest first. */
export function versions(view, it) {
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-labelledby": "versions-title" },
    h("table", {},
      h("thead", {}, h("tr", {}, ["version", "gets", "phase", "since", "requests", "drift", "precision", "comes from", "why"]
        .map((name) => h("th", { key: name, scope: "col", class: name === "requests" ? "n" : null }, name)))),
      h("tbody", {}, it.versions.map((one) => h("tr", { key: one.version },
        h("th", { scope: "row" }, h("i", { class: `swatch v${colour(one.version)}` }),
          h("a", { href: one.version_url || null, rel: "noreferrer", title: one.package || null }, version(one.version))),
        h("td", {}, one.arms.map((arm) => `${arm.arm} ${arm.percent} %`).join(", ") || NONE,
          one.space && h("div", {}, `space ${one.space}`)),
        h("td", {}, one.phase ? phase(one.phase) : NONE),
        h("td", { class: "time" }, one.since === null ? NONE : clock(one.since, view.now)),
        h("td", { class: "n" }, number(one.requests)),
        h("td", {}, one.level === null ? NONE : ["quiet", "small", "large"][one.level]),
        h("td", {}, one.precision || NONE),
        h("td", { class: "from" }, one.run_url ? h("a", { href: one.run_url, rel: "noreferrer" }, "MLflow run") : NONE,
          one.data_sets.length > 0 && ` · ${one.data_sets.join(", ")}`),
        h("td", { class: "why" }, one.reason || NONE))))));
}

/** What happened, newest first. */
export function history(view, it) {
  if (!it.history.length) return h("p", { class: "none" }, "Nothing has happened yet.");
  return h("ol", { class: "history" }, it.history.map((line) =>
    h("li", { key: `${line.at} ${line.phase}` },
      h("time", { datetime: new Date(line.at * 1000).toISOString() }, clock(line.at, view.now)),
      h("b", { class: `v${colour(line.version)}` }, h("i", { class: `swatch v${colour(line.version)}` }), version(line.version)),
      h("span", { class: `phase phase-${line.phase}` }, phase(line.phase),
        line.percent !== null && ` ${line.percent} %`),
      h("span", { class: "why" }, line.reason, line.by && ` (by ${line.by})`))));
}
