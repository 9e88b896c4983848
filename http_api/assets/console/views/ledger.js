// The ledger: who changed who may write, and what administrators did. The latest entries first.

import { html, useState } from "../vendor/preact.js";
import { get } from "../parts/api.js";
import { count, exact, moment, visible } from "../parts/format.js";
import { useLive } from "../parts/live.js";
import { change, link } from "../parts/router.js";
import { Answer, Card, Chip, Empty, Facts, Page, Pager, Search } from "../parts/ui.js";

/** Entries that one look takes from the node, which gives so many at most; older ones are a look further back. */
const WINDOW = 500;
const SIZE = 50;
const EVERY_MS = 10000;

const OUTCOMES = { done: "good", unchanged: "", refused: "bad", intended: "warn", unknown: "warn" };

/** The window of entries that ends before `end`; 0: with the latest one. */
async function read(end, signal) {
  const bounds = await get("/v1/ledger", { n: 1 }, { signal });
  const stop = end ? Math.min(end, bounds.end) : bounds.end;
  const from = Math.max(bounds.first, stop - WINDOW);
  let entries = [];
  for (let next = from; next < stop; ) {
    const page = await get("/v1/ledger", { from: next, n: Math.min(WINDOW, stop - next) }, { signal });
    entries = entries.concat(page.entries);
    if (page.next <= next) break;
    next = page.next;
  }
  return { ...bounds, from, stop, entries: entries.filter((entry) => entry.number < stop).reverse() };
}

const whoOf = (entry) => (entry.principal === null ? "the cluster" : visible(entry.principal || entry.client) || "anonymous");
const aboutOf = (entry) => (entry.topic ? (entry.partitions ? `${entry.topic}/${entry.partitions}` : entry.topic) : visible(entry.name) || "");

export function Ledger({ query }) {
  const end = Number(query.end || 0);
  const ledger = useLive((signal) => read(end, signal), [end], EVERY_MS);
  const [open, setOpen] = useState(null);
  const find = (query.find || "").toLowerCase();
  const first = Number(query.first || 0);
  const fits = (entry) =>
    [entry.act, whoOf(entry), aboutOf(entry), entry.outcome, entry.code, entry.request].some((text) => text?.toLowerCase().includes(find));
  return html`<${Page} title="Ledger" note="Each change of who may write and each act of administration, in a chain of hashes that no request can change. stockade audit verify follows it.">
    <div class="filters">
      <${Search} label="Filter" placeholder="Act, principal, topic, outcome, request" value=${query.find || ""} onInput=${(text) => change({ find: text, first: "" })} />
    </div>
    <${Answer} of=${ledger}>
      ${(seen) => {
        const found = seen.entries.filter(fits);
        return html`
          <${Card} flush>
            ${found.length === 0 && html`<${Empty} title=${find ? "No entry here is like this" : "The ledger has no entry here"} />`}
            <ol class="records refused">
              ${found.slice(first, first + SIZE).map((entry) => html`<${Row} key=${entry.number} entry=${entry} isOpen=${open === entry.number} onToggle=${() => setOpen(open === entry.number ? null : entry.number)} />`)}
            </ol>
            <${Pager} first=${first} size=${SIZE} total=${found.length} onMove=${(to) => change({ first: to || "" })} />
          <//>
          <p class="soft">Entries ${count(seen.from)} to ${count(seen.stop - 1)}, of ${count(seen.first)} to ${count(seen.end - 1)}. ${seen.from > seen.first && html`<a href=${link(["ledger"], { end: seen.from, find: query.find })}>Older ones</a>`} ${end > 0 && html`<a href=${link(["ledger"], { find: query.find })}>The latest</a>`}</p>`;
      }}
    <//>
  <//>`;
}

/** Its pieces have the places of those of a refused write, which order them on a phone. */
function Row({ entry, isOpen, onToggle }) {
  return html`<li>
    <button class="record" aria-expanded=${isOpen} onClick=${onToggle}>
      <span class="at">${moment(entry.at_ms)}</span>
      <span class="who"><b>${entry.act}</b></span>
      <span class="place">${aboutOf(entry)}</span>
      <span class="why">${whoOf(entry)}</span>
      <span class="outcome"><${Chip} kind=${OUTCOMES[entry.outcome]}>${entry.outcome}<//></span>
    </button>
    ${isOpen &&
    html`<div class="record-body">
      <${Facts} facts=${[
        ["Entry", entry.number],
        ["At", exact(entry.at_ms)],
        ["Who", whoOf(entry)],
        ["Request", entry.request ? html`<span class="mono">${entry.request}</span> from ${entry.client}` : "none: the cluster itself"],
        ["About", entry.topic && entry.topic_id ? html`<a href=${link(["topics", entry.topic])}>${aboutOf(entry)}</a>` : aboutOf(entry) || "the cluster"],
        ["Topic id", entry.topic_id ?? "none"],
        ["Outcome", entry.code ? html`${entry.outcome}: <a href=${`/docs/problems#${entry.code}`}>${entry.code}</a>` : entry.intent ? `${entry.outcome}, of what entry ${entry.intent} intended` : entry.outcome],
        ["Hash", html`<span class="mono wrap">${entry.hash}</span>`],
      ]} />
      ${entry.before && html`<p><b>Before</b></p><pre tabindex="0">${JSON.stringify(entry.before, null, 1)}</pre>`}
      ${entry.after && html`<p><b>After</b></p><pre tabindex="0">${JSON.stringify(entry.after, null, 1)}</pre>`}
    </div>`}
  </li>`;
}
