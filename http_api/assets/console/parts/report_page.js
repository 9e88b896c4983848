// A report as HTML, made safe: a page from a disk may come from anyone. Only elements and attributes that the reports of
// Stockade use stay; nothing that loads, runs, or leads elsewhere.

const ELEMENTS = new Set(
  ("a b body br code details div figcaption figure h1 h2 h3 h4 i li main ol p pre section small span strong summary table tbody td th thead tr ul " +
    "svg g rect line path circle polyline polygon text title").split(" "),
);
const ATTRIBUTES = new Set(
  ("class open role aria-label viewBox x x1 x2 y y1 y2 cx cy r rx width height d points transform text-anchor dominant-baseline colspan rowspan").split(" "),
);
/** The width of a bar is the one style that a report gives to an element. */
const STYLE = /<style>([^]*?)<\/style>/g;
const WIDTH = /^width:\s*[\d.]+%;?$/;

/** { css, body() } of a page: its styles as text, and a new copy of its content. Throws an Error with a sentence. */
export function pageOf(text) {
  const css = [...text.matchAll(STYLE)].map((found) => found[1]).join("\n");
  // The policy of this page forbids styles in a document: they are taken out before it is one.
  const seen = new DOMParser().parseFromString(text.replace(STYLE, "").replace(/\sstyle=/g, " data-style="), "text/html");
  if (!seen.querySelector("h1")) throw new Error("This page has no heading: it is not a report of Stockade.");
  return { css: scoped(css), body: () => safe(seen.body) };
}

/** Styles of a document, for one that has neither a root nor a body of its own. */
const scoped = (css) =>
  css
    .replace(/@import[^;]*;?/g, "")
    .replace(/url\([^)]*\)/g, "none")
    .replaceAll(":root", ":host")
    .replace(/\bbody\s*\{/g, ".report {");

function safe(node) {
  if (node.nodeType === Node.TEXT_NODE) return document.createTextNode(node.data);
  const name = node.localName;
  if (node.nodeType !== Node.ELEMENT_NODE || !ELEMENTS.has(name)) return null;
  const made = name === "body" ? document.createElement("div") : document.createElementNS(node.namespaceURI, name);
  for (const { name: attribute, value } of node.attributes) if (ATTRIBUTES.has(attribute)) made.setAttribute(attribute, value);
  if (name === "body") made.className = "report";
  const style = node.dataset?.style;
  if (style && WIDTH.test(style)) made.style.width = style.slice(style.indexOf(":") + 1).replace(";", "").trim();
  for (const child of node.childNodes) {
    const copy = safe(child);
    if (copy) made.append(copy);
  }
  return made;
}
