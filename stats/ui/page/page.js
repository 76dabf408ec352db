// The page: what was asked for is in the address (#endpoint=NAME&span=1h), what is known comes from
// view.json, and all that is shown is made again from the last of each.

import { h, patch, redraw } from "./dom.js";
import { Live } from "./live.js";
import { follow } from "./hover.js";
import { bar, engines, list, notice, nothing } from "./frame.js";
import { detail } from "./detail.js";

const at = (id) => document.getElementById(id);
let view = null;

function asked() {
  const wish = new URLSearchParams(location.hash.slice(1));
  return { endpoint: wish.get("endpoint") ?? "", span: wish.get("span") ?? "" };
}

function address() {
  const { endpoint, span } = asked();
  const words = new URLSearchParams();
  if (endpoint) words.set("endpoint", endpoint);
  if (span) words.set("span", span);
  return `view.json?${words}`;
}

const live = new Live(address, (seen) => { view = seen; draw(); }, frame);
const refresh = follow(at("detail"), at("tip"));

function frame() {
  patch(at("bar"), bar(view, live, theme, turn));
  patch(at("notice"), notice(view, live));
}

function draw() {
  frame();
  patch(at("list"), list(view, asked()));
  patch(at("engines"), engines(view));
  const { detail: shown } = view;
  document.title = shown === null ? "Headrace" : `${shown.name} · Headrace`;
  patch(at("detail"), shown === null ? nothing(view) : h("div", { key: shown.name }, detail(view)));
  refresh();
  markCut();
}

/** Marks tables that are wider than their place: a touch screen shows no bar to scroll by. */
function markCut() {
  for (const element of document.querySelectorAll(".scroll")) {
    element.toggleAttribute("data-cut", element.scrollWidth > element.clientWidth + 1);
  }
}

// Light, dark, or as the system says; kept for the next visit if the browser allows it.

const THEMES = ["auto", "light", "dark"];
let theme = "auto";
try {
  theme = localStorage.getItem("headrace-theme") ?? "auto";
} catch {
  // a browser without storage follows the system
}

function wear() {
  document.documentElement.dataset.theme = theme;
  redraw(document);
  frame();
}

function turn() {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  try {
    localStorage.setItem("headrace-theme", theme);
  } catch {
    // then it lasts as long as the page
  }
  wear();
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which endpoint is shown
  at("detail").focus();
});
addEventListener("hashchange", () => {
  live.now();
  if (view !== null) patch(at("list"), list(view, asked()));
});
addEventListener("resize", markCut);
addEventListener("toggle", markCut, true); // of a rollout that was opened
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(document));
setInterval(frame, 1000); // the age of what is shown
wear();
live.now();
