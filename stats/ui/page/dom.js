// A tree of plain objects made into elements, and changed in place when it is made again: elements
// that stay keep their scroll, focus, hover and open state. Text is only ever set as text.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line", "rect", "circle", "g", "title", "polyline"]);
const PROPERTIES = new Set(["key", "style", "draw", "hover", "once"]);

/** An element to be: h("p", {class: "x"}, "text", other, [more]). Null, false and "" are left out. */
export function h(tag, props, ...children) {
  const kept = children.flat(Infinity).filter((child) => child !== null && child !== undefined
    && child !== false && child !== "");
  return { tag, props: props ?? {}, children: kept };
}

/** Makes the children of `parent` what `nodes` say. */
export function patch(parent, nodes) {
  const wanted = Array.isArray(nodes) ? nodes : [nodes];
  const keyed = new Map();
  for (const child of parent.childNodes) {
    if (child.headraceKey !== undefined) keyed.set(child.headraceKey, child);
  }
  let at = parent.firstChild;
  for (const node of wanted) {
    const key = typeof node === "object" ? node.props.key : undefined;
    let element = key === undefined || at?.headraceKey === key ? at : keyed.get(key) ?? null;
    keyed.delete(key); // two of one key are two elements
    if (element === null || !isOf(element, node, key)) {
      element = make(node, key);
      parent.insertBefore(element, at);
    } else if (element === at) {
      at = at.nextSibling;
    } else {
      parent.insertBefore(element, at);
    }
    update(element, node);
  }
  while (at !== null) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** Draws what was drawn by hand again: the colours may have changed. */
export function redraw(root) {
  for (const element of root.querySelectorAll("canvas")) element.headraceDraw?.(element);
}

function isOf(element, node, key) {
  if (typeof node !== "object") return element.nodeType === Node.TEXT_NODE;
  return element.nodeType === Node.ELEMENT_NODE && element.localName === node.tag
    && element.headraceKey === key;
}

function make(node, key) {
  if (typeof node !== "object") return document.createTextNode("");
  const element = SVG_TAGS.has(node.tag)
    ? document.createElementNS(SVG, node.tag)
    : document.createElement(node.tag);
  element.headraceKey = key;
  for (const [name, value] of Object.entries(node.props.once ?? {})) {
    element.setAttribute(name, String(value));
  }
  return element;
}

function update(element, node) {
  if (typeof node !== "object") {
    const text = String(node);
    if (element.data !== text) element.data = text;
    return;
  }
  const { props, children } = node;
  const before = element.headraceProps ?? {};
  for (const name of Object.keys(before)) {
    if (!(name in props) && !PROPERTIES.has(name)) set(element, name, null);
  }
  for (const [name, value] of Object.entries(props)) {
    if (!PROPERTIES.has(name) && before[name] !== value) set(element, name, value);
  }
  for (const [name, value] of Object.entries(props.style ?? {})) {
    element.style.setProperty(name, value);
  }
  element.headraceProps = props;
  element.headraceHover = props.hover;
  patch(element, children);
  if (props.draw) {
    element.headraceDraw = props.draw;
    props.draw(element);
  }
}

function set(element, name, value) {
  if (name.startsWith("on")) {
    element[name] = value;
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else if (name === "href" && !/^(https?:\/\/|#)/.test(value)) {
    element.removeAttribute(name); // no other scheme is ever meant
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}
