// The settings that nodes run with: what was changed, and where nodes differ.

import { html } from "../vendor/preact.js";
import { count } from "../parts/format.js";
import { useGet } from "../parts/live.js";
import { change } from "../parts/router.js";
import { Answer, Card, Chip, Empty, Page, Search, Table } from "../parts/ui.js";

/** Settings by which nodes are told apart: that they differ is no finding. */
const OWN = new Set(["data_dir", "http", "node_id", "raft_listen", "http_tls.certificate", "http_tls.key", "http_tls.plain_listen", "raft.tls.certificate", "raft.tls.key"]);
const REFRESH_MS = 10000;

export function Settings({ query }) {
  const find = (query.find || "").toLowerCase();
  const isAll = query.all === "1";
  const settings = useGet("/v1/settings", { everywhere: true }, REFRESH_MS);
  return html`<${Page} title="Settings" crumbs=${[["Cluster", ["cluster"]]]} note="Of the nodes' configurations, as they were started with. A change takes effect when a node is started again.">
    <div class="filters">
      <${Search} label="Setting" placeholder="Part of its name" value=${query.find || ""} onInput=${(text) => change({ find: text })} />
      <label class="check"><input type="checkbox" checked=${isAll} onChange=${() => change({ all: isAll ? "" : "1" })} />Also defaults, and what tells nodes apart</label>
      ${settings.data?.missing.length > 0 && html`<${Chip} kind="warn">no answer: ${settings.data.missing.join(", ")}<//>`}
    </div>
    <${Card} flush>
      <${Answer} of=${settings}>
        ${(answer) => html`<${Table} label="Settings" heads=${["Setting", "Value", "Default"]}
          rows=${rowsOf(answer.nodes).filter((row) => row.name.includes(find) && (isAll || find || row.isChanged || row.differs)).map((row) => ({
            key: row.name,
            cells: [
              html`<span class="mono strong">${row.name}</span>${row.differs && html` <${Chip} kind="warn">nodes differ<//>`}`,
              [...row.values].map(([shown, nodes]) => html`<div class="mono breaks">${row.values.size > 1 && html`<span class="soft">${nodes.join(", ")}: </span>`}${shown}</div>`),
              html`<span class="mono soft">${text(row.fallback)}</span>`,
            ],
          }))}
          empty=${html`<${Empty} title=${find ? "No setting is called so" : "Every setting has its default"} />`} />`}
      <//>
    <//>
  <//>`;
}

/** A row for each setting: its values, each with the nodes that have it. */
function rowsOf(nodes) {
  const rows = new Map();
  for (const { node_id: node, settings } of nodes) {
    for (const { name, value, default: fallback } of settings) {
      if (!rows.has(name)) rows.set(name, { name, fallback, values: new Map(), isChanged: false });
      const row = rows.get(name);
      const shown = text(value);
      row.values.set(shown, [...(row.values.get(shown) || []), node]);
      row.isChanged = row.isChanged || (value !== null && shown !== text(fallback) && !OWN.has(name));
    }
  }
  for (const row of rows.values()) row.differs = row.values.size > 1 && !OWN.has(row.name);
  return [...rows.values()].sort((one, other) => one.name.localeCompare(other.name));
}

const text = (value) => (value === null ? "–" : typeof value === "number" ? count(value) : Array.isArray(value) ? value.join(", ") || "none" : String(value));
