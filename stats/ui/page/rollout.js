// A rollout: how far it is, what its checks say, and both arms as the checks saw them.

import { h } from "./dom.js";
import { figure, legend, lines, plot, pointAxis } from "./charts.js";
import { clock, colour, number, percent, phase, rate, span, version } from "./words.js";

const MARKS = { done: "✓", now: "●", todo: "○", failed: "✕", left: "–" };
const VERDICTS = { pass: ["✓", "pass"], fail: ["✕", "fail"], unknown: ["…", "not yet"] };

/** The stages of a version that is not loaded yet. */
export function preparing(it) {
  const its = it.preparing;
  return its && h("section", { key: "preparing", "aria-labelledby": "preparing-title" },
    h("h2", { id: "preparing-title" }, `${version(its.version)} is on its way`),
    stages(its.stages), h("p", { class: "why" }, its.reason));
}

/** The rollout that goes on, open; the last one, to be opened. */
export function rollout(view, it) {
  const its = it.rollout;
  if (its === null) return null;
  const on = its.ended === null;
  const recent = on || its.ended > it.columns.start;
  const title = `Rollout of ${version(its.version)} against ${version(its.against)}`;
  return h("section", { key: "rollout", id: "rollout" },
    h("details", { key: `${its.version} ${its.began}`, once: recent ? { open: "" } : {} },
      h("summary", {}, h("h2", {}, title, h("span", { class: `badge tone-${its.tone}` }, phaseLine(its))), legend(arms(its, "rate"))),
      h("p", { class: "why" }, its.reason, facts(view, its)),
      stages(its.stages),
      h("div", { class: "grid four", "data-time": "" }, charts(view, its)),
      checks(its.checks)));
}

function phaseLine(its) {
  return its.paused === null ? phase(its.phase) : `${phase(its.phase)}, paused`;
}

function facts(view, its) {
  const words = [`began ${clock(its.began, view.now)}`];
  if (its.ended !== null) words.push(`ended ${clock(its.ended, view.now)} after ${span(its.ended - its.began)}`);
  else words.push(`${span(view.now - its.began)} so far`);
  if (its.deadline !== null) words.push(`${span(its.deadline - view.now)} to the deadline`);
  if (its.paused !== null) words.push(`paused since ${clock(its.paused, view.now)}`);
  if (its.next_version) words.push(`${version(its.next_version)} waits for its end`);
  return h("small", {}, words.join(" · "));
}

function stages(all) {
  return h("ol", { class: "stagesline" }, all.map((stage) =>
    h("li", { key: stage.name, class: stage.mark, "aria-current": stage.mark === "now" ? "step" : null },
      h("i", { "aria-hidden": "true" }, MARKS[stage.mark]), stage.name)));
}

function charts(view, its) {
  const points = its.points;
  const moments = its.moments.filter((moment) => moment.at >= its.began - 1);
  const end = Math.max(its.ended ?? view.now, its.began + 60);
  const marks = moments.map((moment) => ({
    at: moment.at, css: `phase-${moment.phase}`,
    name: `${phase(moment.phase)}${moment.percent === null ? "" : ` ${moment.percent} %`}`,
  }));
  const x = pointAxis(points.at, its.began, end, view.now, marks);
  const both = (field) => arms(its, field);
  return [
    weights(its, x, moments, view),
    points.at.length > 0 && lines({ key: "errors", title: "Errors, judged", axis: x, series: both("errors"), format: percent, least: 0.01 }),
    points.at.length > 0 && lines({ key: "slow", title: "Slower than stable's p95", axis: x, series: both("slow"), format: percent, least: 0.1 }),
    points.at.length > 0 && lines({ key: "rate", title: "Requests, judged", axis: x, series: both("rate"), format: rate }),
  ];
}

function arms(its, field) {
  return [["stable", its.against], ["candidate", its.version]].map(([arm, name]) => ({
    name: `${version(name)} ${arm}`, css: `v${colour(name)}`, values: its.points[`${arm}_${field}`],
  }));
}

/** What the candidate had, step by step. */
function weights(its, x, moments, view) {
  const place = (at) => 100 * Math.min(1, Math.max(0, (at - x.start) / x.width));
  const areas = its.steps.map((step, i) => {
    const from = place(step.at), to = i + 1 < its.steps.length ? place(its.steps[i + 1].at) : 100;
    return h("rect", {
      key: step.at, class: `step v${colour(its.version)} ${step.shadow ? "copies" : "callers"}`,
      x: from, width: Math.max(0, to - from), y: 100 - step.percent, height: step.percent,
    });
  });
  const hover = (share) => {
    const at = x.start + share * x.width;
    const step = its.steps.findLast((one) => one.at <= at);
    const last = moments.findLast((one) => one.at <= at);
    const got = step === undefined ? "nothing" : `${number(step.percent)} % of ${step.shadow ? "requests, as copies" : "callers"}`;
    return {
      place: share, head: clock(at, view.now),
      rows: [{ css: `v${colour(its.version)}`, name: version(its.version), value: got }],
      note: last === undefined ? "" : `${phase(last.phase)} since ${clock(last.at, view.now)}${last.reason ? `: ${last.reason}` : ""}`,
    };
  };
  const told = its.steps.map((step) => `${clock(step.at, view.now)} ${step.percent} %${step.shadow ? " shadow" : ""}`);
  return figure("weights", `What ${version(its.version)} had`, "pale: copies of requests; full: callers", plot({
    x, hover, empty: false, label: `Percent over time: ${told.join(", ")}`,
    ticks: [0, 0.5, 1].map((at) => ({ place: at, name: `${at * 100} %` })),
    inside: h("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" },
      [0, 0.5, 1].map((at) => h("path", { key: at, class: "grid", d: `M0 ${100 - at * 100}H100` })), areas),
  }));
}

function checks(all) {
  if (!all.length) return h("p", { class: "none" }, "No check has said anything yet.");
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Checks" },
    h("table", { class: "checks" },
      h("thead", {}, h("tr", {}, ["check", "verdict", "what it rests on"].map((name) =>
        h("th", { key: name, scope: "col" }, name)))),
      h("tbody", {}, all.map((check) => {
        const [glyph, word] = VERDICTS[check.verdict] ?? ["?", check.verdict];
        return h("tr", { key: check.name },
          h("th", { scope: "row" }, check.name,
            !check.gate ? h("small", {}, "reports only") : !check.required && h("small", {}, "need not pass")),
          h("td", { class: `verdict ${check.verdict}` }, h("span", { "aria-hidden": "true" }, glyph), ` ${word}`),
          h("td", { class: "why" }, check.reason));
      }))));
}
