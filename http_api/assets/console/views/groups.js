// Groups, and the resources that their members own.

import { html } from "../vendor/preact.js";
import { path } from "../parts/api.js";
import { count, plural } from "../parts/format.js";
import { useGet } from "../parts/live.js";
import { change, link } from "../parts/router.js";
import { Answer, Card, Chip, Empty, Page, Pager, Search, Table } from "../parts/ui.js";

const MOST = 500;
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
  return html`<${Page} title=${name} crumbs=${[["Groups", ["groups"]]]}>
    <div class="filters">
      <${Search} label="Resource or owner" value=${query.find || ""} onInput=${(text) => change({ find: text, first: "" })} />
    </div>
    <${Card} flush>
      <${Answer} of=${resources}>
        ${(answer) => {
          const found = answer.resources.filter((each) => each.resource.toLowerCase().includes(find) || each.client_id?.toLowerCase().includes(find));
          return html`<${Table} label="Resources" heads=${["Resource", "Owner", { text: "Generation", end: true }, { text: "Fencing epoch", end: true }]}
              rows=${found.slice(first, first + SIZE).map((each) => ({
                key: each.resource,
                cells: [
                  html`<b>${each.resource}</b>`,
                  each.owned ? each.client_id : html`<${Chip}>no owner<//>`,
                  count(each.generation),
                  count(each.fence_epoch),
                ],
              }))}
              empty=${html`<${Empty} title="No resource is like this" />`} />
            <${Pager} first=${first} size=${SIZE} total=${found.length} onMove=${(to) => change({ first: to || "" })} />`;
        }}
      <//>
    <//>
  <//>`;
}
