// What stands around an endpoint: the bar on top, the list at the side, and what to do if there
// is nothing to show.

import { h } from "./dom.js";
import { percent, rate, span as timespan, version } from "./words.js";
import { spark } from "./charts.js";

const STATES = {
  loading: "loading", live: "live", lost: "not answering", held: "held",
};

/** The bar: span of time, whether it is live, light or dark. */
export function bar(view, live, theme, turn) {
  const age = live.at === null ? "" : `${timespan((Date.now() - live.at) / 1000)} ago`;
  return [
    h("strong", { key: "name" }, "Headrace"),
    h("div", { key: "spans", class: "spans", role: "group", "aria-label": "Span of time" },
      (view?.spans ?? []).map((name) => h("a", {
        key: name, href: address(view.detail?.name ?? "", name),
        "aria-current": name === view.span ? "true" : null,
      }, name))),
    h("span", { key: "gap", class: "gap" }),
    view?.mlflow_url && h("a", { key: "mlflow", href: view.mlflow_url, rel: "noreferrer" }, "MLflow"),
    view?.gateway_url && h("a", {
      key: "gateway", href: `${view.gateway_url}/endpoints`, rel: "noreferrer",
    }, "gateway"),
    h("button", { key: "theme", type: "button", onclick: turn, title: "Light, dark, or as the system says" },
      `theme: ${theme}`),
    h("button", {
      key: "hold", type: "button", "aria-pressed": String(live.held), title: "Stop asking for news, to look closely", onclick: () => live.hold(!live.held),
    }, live.held ? "go on" : "hold"),
    h("span", { key: "state", class: `state ${live.state}`, title: live.why || null },
      h("i", { class: "dot" }), STATES[live.state], h("small", {}, age)),
  ].filter(Boolean);
}

/** What is amiss, in a sentence. */
export function notice(view, live) {
  const said = [];
  if (live.state === "lost") {
    said.push(`${live.why}. What you see is ${view === null ? "nothing yet" : "the last that was known"}; `
      + "it goes on by itself.");
  } else if (view !== null && !view.health.known) {
    said.push(view.health.said);
  }
  return said.map((text) => h("p", { key: text }, capital(text)));
}

/** All endpoints, as links. */
export function list(view, asked) {
  if (view.endpoints.length === 0) return [];
  const chosen = view.endpoints.some((one) => one.name === asked.endpoint)
    ? asked.endpoint : view.detail?.name;
  return [h("ul", { key: "all" }, view.endpoints.map((one) =>
    h("li", { key: one.name }, h("a", {
      href: address(one.name, view.span), class: `tone-${one.tone}`,
      "aria-current": one.name === chosen ? "page" : null,
    },
    h("span", { class: "name" }, h("i", { class: "dot" }), h("b", { title: one.name }, one.name)),
    h("span", { class: "said" }, one.said),
    h("span", { class: "figures" },
      h("span", {}, rate(one.rate)),
      one.errors > 0 && h("span", { class: one.errors >= 0.01 ? "errors" : "few" }, `${percent(one.errors)} errors`),
      one.routes.filter((route) => route.arm !== "stable").map((route) =>
        h("span", { key: route.arm }, `${version(route.version)} ${route.arm} ${route.percent} %`))),
    spark(one.spark, "plain")))))];
}

/** Each Triton, and what it computes with. */
export function engines(view) {
  const all = view.engines ?? [];
  const several = new Set(all.map((one) => one.pool)).size > 1;
  return all.map((one) => h("p", { key: one.loader, class: one.well ? null : "errors" },
    h("b", {}, `Triton of ${one.loader}${several ? `, pool ${one.pool}` : ""}`), ` ${one.said}`));
}

/** In place of an endpoint, if there is none. */
export function nothing(view) {
  return h("section", { key: "nothing", class: "welcome" },
    h("h1", {}, "No endpoint yet"),
    h("p", {}, "Register a model with the standard MLflow client, and it gets an endpoint by itself:"),
    command(`export MLFLOW_TRACKING_URI=${view.mlflow_url || "http://127.0.0.1:5000"}`),
    h("p", {}, "Or write one, and apply it:"),
    command("headrace apply -f endpoint.yaml"));
}

/** A command to copy. */
export function command(text) {
  return h("pre", { key: text, class: "command", tabindex: "0" }, h("code", {}, text));
}

/** The page's address of an endpoint and a span. */
export function address(endpoint, span) {
  return `#${new URLSearchParams({ endpoint, span })}`;
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
