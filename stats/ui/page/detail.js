// One endpoint, from its health down to its outputs.

import { h } from "./dom.js";
import { heatmap, legend, lines, timeAxis } from "./charts.js";
import { command } from "./frame.js";
import { rollout, preparing } from "./rollout.js";
import { drift } from "./drift.js";
import { arms, history, stageKey, versions } from "./tables.js";
import { clock, colour, duration, number, percent, phase, rate, version, estimate } from "./words.js";

const ARMS_OF_CALLERS = new Set(["stable", "canary", "control", "forced"]);

/** All sections of the endpoint that is shown. */
export function detail(view) {
  const it = view.detail;
  const marks = it.history.filter((line) => MARKED.has(line.phase)).map((line) => ({
    at: line.at, css: `phase-${line.phase}`,
    name: `${version(line.version)} ${phase(line.phase)}${line.percent === null ? "" : ` ${line.percent} %`}`,
  }));
  const x = timeAxis(it.columns, view.now, marks);
  const counted = it.series.length > 0;
  return [
    head(view, it),
    counted || it.rollout ? null : untouched(view, it),
    preparing(it),
    rollout(view, it),
    counted && section("traffic", "Traffic", traffic(it, x), legend(of(it, "rate"))),
    counted && section("arms", "Arms side by side", arms(it), stageKey()),
    counted && section("texts", "Texts", texts(it, x), legend(of(it, "rate"))),
    own(it, x),
    drift(view, it),
    counted && section("outputs", "Outputs", outputs(it, x)),
    section("versions", "Versions", versions(view, it)),
    section("history", "History", history(view, it)),
  ].filter(Boolean);
}

const MARKED = new Set(["Shadow", "Canary", "Promoted", "Settled", "Serving", "RolledBack", "Expired"]);

export function section(key, title, inside, note = null) {
  return h("section", { key, id: key, "aria-labelledby": `${key}-title` },
    h("h2", {}, h("span", { id: `${key}-title` }, title), note), inside);
}

function head(view, it) {
  return h("header", { key: "head", class: `head tone-${it.tone}` },
    h("h1", {}, it.name),
    h("p", { class: "said" }, h("i", { class: "dot" }), it.said),
    h("p", { class: "of" }, "model ", h("a", { href: it.model_url || null, rel: "noreferrer" }, it.model),
      it.task && ` · ${it.task}`),
    it.notes.map((note) => h("p", { key: note, class: "amiss" }, note)),
    weights(it.routes),
    figures(view, it));
}

/** Who gets what, as one bar. */
function weights(routes) {
  const callers = routes.filter((route) => route.arm !== "shadow");
  const shadows = routes.filter((route) => route.arm === "shadow");
  if (!callers.length) return null;
  const said = routes.map((one) => `${version(one.version)} ${one.arm} ${one.percent} %`).join(", ");
  return h("div", { class: "weights", role: "img", "aria-label": `Who gets what: ${said}` },
    h("div", { class: "shares" }, callers.map((one) =>
      h("span", { key: one.arm, class: `v${colour(one.version)}`, style: { "flex-grow": String(one.percent) } },
        h("b", {}, version(one.version)), ` ${one.arm} ${one.percent} %`))),
    shadows.map((one) => h("div", { key: `s${one.version}`, class: `copies v${colour(one.version)}` },
      h("b", {}, version(one.version)), ` shadow: copies of ${one.percent} % of requests`)));
}

function figures(view, it) {
  const answering = it.series.filter((one) => ARMS_OF_CALLERS.has(one.arm));
  if (!answering.length) return null;
  const brief = view.endpoints.find((one) => one.name === it.name);
  const main = answering.find((one) => one.arm === "stable") ?? answering[0];
  const shown = [
    ["requests now", rate(brief?.rate)],
    [`errors, ${view.span}`, percent(main.totals.errors)],
    ["median", duration(main.totals.p50)],
    ["p95", duration(main.totals.p95)],
    ["p99", duration(main.totals.p99)],
    ["tokens a text", number(main.totals.tokens)],
    ["UNK", percent(main.totals.unk)],
  ];
  const accuracy = it.accuracy.find((one) => one.arm === "stable");
  if (accuracy?.measured != null) {
    shown.push(["accuracy", percent(accuracy.measured), `of ${number(accuracy.feedback)} answers with feedback`]);
  }
  if (accuracy?.estimated != null) shown.push(["accuracy, estimated", estimate(accuracy), "from scores"]);
  const refused = Object.values(it.refusals).reduce((a, b) => a + b, 0);
  if (refused) {
    const why = Object.entries(it.refusals).map(([name, count]) => `${name}: ${number(count)}`);
    shown.push(["refused", number(refused), `${why.join(", ")}, since ${clock(it.counted_since, view.now, false)}, `
      + "before any version saw them"]);
  }
  return h("dl", { class: "figures" }, shown.map(([name, value, note]) =>
    h("div", { key: name }, h("dt", {}, name), h("dd", {}, value, note && h("small", {}, note)))));
}

function untouched(view, it) {
  if (!it.try_it) return null;
  const body = '{"inputs": "what a fine day"}';
  return h("section", { key: "untouched", class: "welcome" },
    h("h2", {}, "No traffic yet"),
    h("p", {}, "Ask it something:"),
    command(`curl -s ${view.gateway_url || "http://127.0.0.1:8080"}/endpoints/${it.name} -H 'content-type: application/json' -d '${body}'`),
    h("p", {}, "Or send it real texts, from a checkout of Headrace:"),
    command(it.try_it),
    h("p", {}, "What is counted appears here about twenty seconds later."));
}

function named(one) {
  return `${version(one.version)} ${one.arm}`;
}

function of(it, field, keep = () => true) {
  return it.series.filter(keep).map((one) => ({
    name: named(one), css: `v${colour(one.version)} arm-${one.arm}`, values: one[field],
  }));
}

function traffic(it, x) {
  const map = it.heatmaps.find((one) => one.group === "latency");
  return h("div", { class: "grid", "data-time": "" },
    lines({ key: "rate", title: "Requests", axis: x, series: of(it, "rate"), format: rate,
      hint: "attempts a second; a shadow's are copies" }),
    lines({ key: "errors", title: "Errors", axis: x, series: of(it, "errors"), format: percent, least: 0.01,
      hint: "share of attempts answered 500 and above" }),
    lines({ key: "p50", title: "Latency, median", axis: x, series: of(it, "p50"), format: duration }),
    lines({ key: "p95", title: "Latency, 95th percentile", axis: x, series: of(it, "p95"), format: duration }),
    lines({ key: "p99", title: "Latency, 99th percentile", axis: x, series: of(it, "p99"), format: duration }),
    map && heatmap({ key: "latency", title: "Latency of all callers", axis: x, map, format: duration, wide: true,
      hint: "the darker, the larger the share of that time's attempts" }));
}

function texts(it, x) {
  const maps = it.heatmaps.filter((one) => one.group === "texts");
  return [unknown(it), h("div", { key: "grid", class: "grid", "data-time": "" },
    lines({ key: "tokens", title: "Tokens a text, mean", axis: x, series: of(it, "tokens"), format: number }),
    lines({ key: "unk", title: "UNK", axis: x, series: of(it, "unk"), format: percent, least: 0.01,
      hint: "unknown tokens, of all tokens" }),
    lines({ key: "per_word", title: "Tokens a word, mean", axis: x, series: of(it, "tokens_per_word"), format: number,
      hint: "the vocabulary's signal if a tokeniser never says UNK" }),
    lines({ key: "truncated", title: "Truncated texts", axis: x, series: of(it, "truncated"), format: percent, least: 0.01 }),
    maps.map((map) => heatmap({ key: `map ${map.key}`, title: `${map.title}, distribution`, axis: x, map, format: number })))];
}

/** Statistics that the users declared themselves. */
function own(it, x) {
  const maps = it.heatmaps.filter((one) => one.group === "own");
  const unfit = Object.entries(it.unfit).map(([name, count]) => `${name} ${number(count)}`).join(", ");
  if (!maps.length && !it.counters.length && !unfit) return null;
  return section("own", "Your own statistics", [
    h("div", { key: "grid", class: "grid", "data-time": "" },
      it.counters.map((one) => lines({ key: `counter ${one.name}`, title: one.name, axis: x, format: rate,
        series: [{ name: one.name, css: "plain", values: one.values }] })),
      maps.map((map) => heatmap({ key: map.key, title: map.title, axis: x, map, format: number }))),
    unfit && h("p", { key: "unfit", class: "amiss" }, `Observed, but not as declared: ${unfit}`),
  ].filter(Boolean));
}

/** Which words became UNK, if the endpoint asks for it. */
function unknown(it) {
  return it.unk_words.map((one) => h("p", { key: `words ${one.version}`, class: "words" },
    h("b", {}, `Words that became UNK, ${version(one.version)}: `),
    one.words.map(([word, count]) => h("span", { key: word }, word, h("small", {}, number(count)))),
    h("small", {}, `of ${number(one.seen)}${one.below ? `; each at most ${number(one.below)} more` : ""}`)));
}

function outputs(it, x) {
  const maps = it.heatmaps.filter((one) => one.group === "outputs");
  const every = [...new Set(Object.values(it.labels).flatMap((shares) => Object.keys(shares)))].sort();
  return [...new Set(maps.map((one) => one.version))].map((name) => {
    // A label has one colour in all versions.
    const shares = Object.entries(it.labels[name] ?? {}).map(([label, values]) => (
      { name: label, css: `label-${every.indexOf(label) % 8}`, values }));
    return h("div", { key: name, class: "of-version" },
      h("h3", {}, h("i", { class: `swatch v${colour(name)}` }), version(name), legend(shares)),
      h("div", { class: "grid", "data-time": "" },
        shares.length > 0 && lines({ key: "labels", title: "Share of each label", axis: x, series: shares,
          format: percent, least: 1 }),
        maps.filter((one) => one.version === name).map((map) => heatmap({
          key: map.key, axis: x, map, format: number,
          title: map.unit === "score" ? `Score of “${map.title}”` : capital(map.title) }))));
  });
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
