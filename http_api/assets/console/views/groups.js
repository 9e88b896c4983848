// Groups, and the resources that their members own.

import { html, useState } from "../vendor/preact.js";
import { ask, path } from "../parts/api.js";
import { count, plural, visible } from "../parts/format.js";
import { readAgain, useGet } from "../parts/live.js";
import { may } from "../parts/rights.js";
import { change, link } from "../parts/router.js";
import { Answer, Blast, Card, Chip, Dialog, Empty, Page, Pager, Search, Table } from "../parts/ui.js";

const MOST = 500;
const TTL_MS = 5000;
const SIZE = 100;

export function Groups({ query, rest }) {
  return rest.length ? html`<${Group} key=${rest[0]} name=${rest[0]} query=${query} />` : html`<${AllGroups} query=${query} />`;
}

function AllGroups({ query }) {
  const find = query.find || "";
  const groups = useGet("/v1/groups", { prefix: find, n: MOST });
  return html`<${Page} title="Groups" note="A member owns a resource of its group under an epoch that only grows: an older owner is refused.">
    <div class="filters">
      <${Search} label="Group" placeholder="How the name begins" value=${find} onInput=${(text) => change({ find: text })} />
      ${groups.data && html`<span class="soft">${groups.data.groups.length < groups.data.total ? `The first ${count(groups.data.groups.length)} of ${count(groups.data.total)}` : plural(groups.data.total, "group")}</span>`}
    </div>
    <${Card} flush>
      <${Answer} of=${groups}>
        ${(answer) => html`<${Table} label="Groups" heads=${["Group", { text: "Resources", end: true }, { text: "Owned now", end: true }]}
          rows=${answer.groups.map((each) => ({
            key: each.group,
            cells: [html`<a class="strong" href=${link(["groups", each.group])}>${each.group}</a>`, count(each.resources), count(each.owned)],
          }))}
          empty=${html`<${Empty} title=${find ? "No group's name begins so" : "No group owns a resource"}>${!find && "Consumers that join a group, and programs that call own, appear here."}<//>`} />`}
      <//>
    <//>
  <//>`;
}

function Group({ name, query }) {
  const find = (query.find || "").toLowerCase();
  const first = Number(query.first || 0);
  const resources = useGet(path`/v1/groups/${name}/resources`);
  const [freeing, free] = useState(null);
  return html`<${Page} title=${name} crumbs=${[["Groups", ["groups"]]]}>
    <div class="filters">
      <${Search} label="Resource or owner" value=${query.find || ""} onInput=${(text) => change({ find: text, first: "" })} />
    </div>
    <${Card} flush>
      <${Answer} of=${resources}>
        ${(answer) => {
          const found = answer.resources.filter((each) => each.resource.toLowerCase().includes(find) || each.client_id?.toLowerCase().includes(find));
          return html`<${Table} label="Resources" heads=${["Resource", "Owner", { text: "Generation", end: true }, { text: "Fencing epoch", end: true }, ""]}
              rows=${found.slice(first, first + SIZE).map((each) => ({
                key: each.resource,
                cells: [
                  html`<b>${visible(each.resource)}</b>`,
                  each.owned ? visible(each.client_id) : html`<${Chip}>no owner<//>`,
                  count(each.generation),
                  count(each.fence_epoch),
                  each.owned && may("own", "group", name) && html`<button class="small danger" onClick=${() => free(each)}>Free</button>`,
                ],
              }))}
              empty=${html`<${Empty} title="No resource is like this" />`} />
            <${Pager} first=${first} size=${SIZE} total=${found.length} onMove=${(to) => change({ first: to || "" })} />`;
        }}
      <//>
    <//>
    ${freeing && html`<${Free} group=${name} row=${freeing} onClose=${() => free(null)} />`}
  <//>`;
}

/** Takes a resource from its owner under the next generation, and gives it up: a claim that came meanwhile wins, and nothing is done. */
function Free({ group, row, onClose }) {
  const free = async () => {
    const { session } = await ask("POST", "/v1/sessions", { body: { client_id: "console", ttl_ms: TTL_MS } });
    const headers = { "Stockade-Session": session };
    try {
      const claims = [{ resource: row.resource, generation: row.generation + 1 }];
      await ask("POST", path`/v1/groups/${group}/own`, { headers, body: { claims, sever: "resource" } });
    } finally {
      await ask("DELETE", "/v1/session", { headers });
      readAgain();
    }
  };
  return html`<${Dialog} title=${`Free ${row.resource}`} act="Free it" kind="danger" onDo=${free} onClose=${onClose}>
    <${Blast}><ul>
      <li>${visible(row.client_id)} owns it no more. What it does under fencing epoch ${count(row.fence_epoch)} is refused from then on; its session, grants and other resources stay.</li>
      <li>The resource has no owner until a member claims it, under generation ${count(row.generation + 1)} and a higher fencing epoch.</li>
      <li>If a member claims it first, nothing is done.</li>
    </ul><//>
  <//>`;
}
