// Figures under the pointer, or under the cursor that arrow keys move. The cursor stands in every
// chart of the same time, and stays where it is while the charts are drawn again.

import { h, patch } from "./dom.js";

/** Follows pointer and keys within `root`; `tip` shows figures. Returns what to call after drawing. */
export function follow(root, tip) {
  let held = null; // {area, place, height, left, top}

  const show = () => {
    if (held === null || !held.area.isConnected || !held.area.headraceHover) return hide();
    const found = held.area.headraceHover(held.place, held.height);
    if (found === null) return hide();
    root.style.setProperty("--at", found.place);
    held.area.closest("[data-time]")?.setAttribute("data-cursor", "");
    patch(tip, words(found));
    tip.hidden = false;
    const width = tip.offsetWidth, height = tip.offsetHeight;
    const left = held.left + 16 + width > innerWidth ? held.left - width - 16 : held.left + 16;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, Math.min(innerHeight - height - 4, held.top + 12))}px`;
  };

  const hide = () => {
    held = null;
    tip.hidden = true;
    for (const one of root.querySelectorAll("[data-cursor]")) one.removeAttribute("data-cursor");
  };

  const take = (area, clientX, clientY) => {
    const box = area.getBoundingClientRect();
    if (held !== null && held.area !== area) hide();
    held = {
      area,
      place: (clientX - box.left) / box.width,
      height: 1 - (clientY - box.top) / box.height,
      left: clientX,
      top: clientY,
    };
    show();
  };

  root.addEventListener("pointermove", (event) => {
    const area = event.target.closest("[tabindex]");
    if (area?.headraceHover) take(area, event.clientX, event.clientY);
    else if (held !== null && document.activeElement !== held.area) hide();
  });
  root.addEventListener("pointerleave", hide);
  root.addEventListener("focusout", hide);
  root.addEventListener("keydown", (event) => {
    const area = event.target;
    if (!area.headraceHover) return;
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (event.key === "Escape") return hide();
    if (!(event.key in steps)) return;
    event.preventDefault();
    const box = area.getBoundingClientRect();
    const [right, up] = steps[event.key];
    const from = held?.area === area ? held : { place: 1, height: 0.5 };
    const place = clamp(from.place + right * Number(area.dataset.step ?? 0.0112));
    const height = clamp(from.height + up * 0.05);
    take(area, box.left + place * box.width, box.top + (1 - height) * box.height);
  });
  addEventListener("scroll", () => { if (document.activeElement !== held?.area) hide(); }, { passive: true });
  return show;
}

function clamp(share) {
  return Math.min(0.999, Math.max(0.001, share));
}

function words({ head, rows, marks = [], note = "" }) {
  return [
    h("b", { key: "head" }, head),
    h("dl", { key: "rows" }, rows.map((row) => [
      h("dt", { key: `t ${row.name}` }, row.css && h("i", { class: `swatch ${row.css}` }), row.name),
      h("dd", { key: `d ${row.name}` }, row.value),
    ])),
    note && h("p", { key: "note" }, note),
    marks.map((mark) => h("p", { key: `m ${mark}` }, mark)),
  ].flat().filter(Boolean);
}
