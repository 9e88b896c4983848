// What to do about an alert: the runbooks, which the node serves itself.

import { html } from "../vendor/preact.js";
import { send } from "../parts/api.js";
import { useLive } from "../parts/live.js";
import { link } from "../parts/router.js";
import { Answer, Card, Empty, Page } from "../parts/ui.js";

const FILE = new URL("../runbooks.json", import.meta.url).pathname;
let read = null;

/** All of them, read once. */
function runbooks() {
  read ??= send("GET", FILE).then((answer) => answer.json()).catch((error) => { read = null; throw error; });
  return read;
}

const named = (name) => name.replace(/^Stockade/, "").replace(/([a-z])([A-Z])/g, (_, one, other) => `${one} ${other.toLowerCase()}`);

/** A text with `code` in it. */
const Words = ({ text }) => text.split("`").map((piece, place) => (place % 2 ? html`<code>${piece}</code>` : piece));

function Block({ title, text, items, code }) {
  if (title) return html`<h2>${title}</h2>`;
  if (code) return html`<pre tabindex="0" aria-label="Commands">${code}</pre>`;
  if (items) return html`<ul>${items.map((item) => html`<li><${Words} text=${item} /></li>`)}</ul>`;
  return html`<p><${Words} text=${text} /></p>`;
}

export function Runbooks({ rest }) {
  const all = useLive(runbooks, [], 0);
  const [name] = rest;
  return html`<${Page} title=${name ? named(name) : "Runbooks"} crumbs=${name ? [["Runbooks", ["runbooks"]]] : []} note=${name ? `The runbook of the alert ${name}` : "What to do about each alert."}>
    <${Answer} of=${all}>
      ${(found) => {
        if (name && !found[name]) return html`<${Empty} title="There is no such runbook" />`;
        if (name) return html`<div class="card runbook">${found[name].map((block) => html`<${Block} ...${block} />`)}</div>`;
        return html`<${Card} flush><ul class="rows">${Object.entries(found).map(([key, blocks]) => html`<li><a class="strong" href=${link(["runbooks", key])}>${named(key)}</a><span class="soft"><${Words} text=${blocks[0].text} /></span></li>`)}</ul><//>`;
      }}
    <//>
  <//>`;
}
