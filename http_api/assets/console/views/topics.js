// All topics, and a form for another one.

import { html, useState } from "../vendor/preact.js";
import { ask } from "../parts/api.js";
import { count } from "../parts/format.js";
import { useGet } from "../parts/live.js";
import { may, seesAll } from "../parts/rights.js";
import { change, go, link } from "../parts/router.js";
import { Answer, Bar, Card, Chip, Dialog, Empty, Field, Page, Pager, Search, Table } from "../parts/ui.js";
import { hasRoom } from "./topic.js";

const SIZE = 100;

export function Topics({ query }) {
  const [creating, setCreating] = useState(query.create === "1");
  const internal = query.internal === "1";
  const find = query.find || "";
  const first = Number(query.first || 0);
  const topics = useGet("/v1/topics", { internal: internal ? "true" : "", find, first: first || "", n: SIZE });
  const isRoomy = hasRoom(useGet("/v1/cluster").data);
  const create = may("admin", "topic") && html`<button class="primary" onClick=${() => setCreating(true)}>Create a topic</button>`;
  return html`<${Page} title="Topics" acts=${create}>
    <div class="filters">
      <${Search} label="Name" placeholder="Part of a name" value=${find} onInput=${(text) => change({ find: text, first: "" })} />
      <label class="check"><input type="checkbox" checked=${internal} onChange=${() => change({ internal: internal ? "" : "1" })} />Stockade's own</label>
    </div>
    <${Card} flush>
      <${Answer} of=${topics}>
        ${(answer) => html`<${Table} label="Topics" heads=${["Name", { text: "Partitions", end: true }, "Slots held", { text: "Replicas", end: true }, "Writes"]}
              rows=${answer.topics.map((topic) => ({
                key: topic.topic_id,
                cells: [
                  html`<a class="strong" href=${link(["topics", topic.name])}>${topic.name}</a>`,
                  count(topic.partitions),
                  html`<${Held} held=${topic.held} of=${topic.partitions} name=${topic.name} />`,
                  html`<${Copies} topic=${topic} isRoomy=${isRoomy} />`,
                  topic.sealed ? html`<${Chip} kind="warn">sealed<//>` : topic.require_fence ? html`<${Chip} kind="accent">token required<//>` : html`<span class="soft">with or without a token</span>`,
                ],
              }))}
              empty=${find ? html`<${Empty} title="No topic has this in its name" />` : html`<${Empty} title=${seesAll() ? "There is no topic yet" : "There is no topic that you may see"} act=${create}>A topic is a set of logs. Each has one writer at a time, if you want that.<//>`} />
            <${Pager} first=${first} size=${SIZE} total=${answer.total} onMove=${(to) => change({ first: to || "" })} />`}
      <//>
    <//>
    ${creating && create && html`<${NewTopic} onClose=${() => setCreating(false)} />`}
  <//>`;
}

/** How many slots have an exclusive holder, as a bar: what a topic is like at a glance. */
const Held = ({ held, of, name }) =>
  held === null || held === undefined
    ? "–"
    : html`<span class="held-bar"><${Bar} share=${of ? held / of : 0} kind="accent" label=${`Slots of ${name} that are held`} /><span>${count(held)} of ${count(of)}</span></span>`;

/** Replicas of each partition: with how many the topic began, unless partitions were moved since. */
function Copies({ topic: { partitions, replication_factor: began, single, no_majority: stopped }, isRoomy }) {
  if (stopped > 0) return html`<${Chip} kind="bad" title="No writes until nodes are back">no majority${stopped < partitions && ` of ${count(stopped)} of ${count(partitions)}`}<//>`;
  if (single > 0 && isRoomy) return html`<${Chip} kind="warn" title="Lost with the disk of one node, and stops with that node">1${single < partitions && ` on ${count(single)} of ${count(partitions)}`}<//>`;
  return began === 1 && single === 0 ? "2 or more" : count(began);
}

function NewTopic({ onClose }) {
  const [form, setForm] = useState({ name: "", partitions: 1, replicas: "", fence: true, hours: "" });
  const set = (name) => (event) => setForm({ ...form, [name]: event.target.type === "checkbox" ? event.target.checked : event.target.value });
  const create = async () => {
    const config = { require_fence: form.fence };
    if (form.hours) config.retention_ms = Number(form.hours) < 0 ? -1 : Math.round(Number(form.hours) * 3600e3);
    const body = { name: form.name.trim(), partitions: Number(form.partitions), config };
    if (form.replicas) body.replication_factor = Number(form.replicas);
    await ask("POST", "/v1/topics", { body });
    go(["topics", body.name]);
  };
  return html`<${Dialog} title="Create a topic" act="Create" onDo=${create} onClose=${onClose}>
    <${Field} label="Name" hint="Letters, digits, dot, underscore, hyphen"><input required autofocus pattern="[A-Za-z0-9._\\-]{1,249}" value=${form.name} onInput=${set("name")} /><//>
    <div class="two">
      <${Field} label="Partitions" hint="More can be added later"><input type="number" min="1" required value=${form.partitions} onInput=${set("partitions")} /><//>
      <${Field} label="Replicas" hint="Empty: 3, or 1 with fewer than three nodes"><input type="number" min="1" value=${form.replicas} onInput=${set("replicas")} /><//>
    </div>
    <${Field} label="Keep records for (hours)" hint="Empty: as the cluster does, 7 days unless configured; -1: for ever"><input type="number" min="-1" step="any" value=${form.hours} onInput=${set("hours")} /><//>
    <label class="check"><input type="checkbox" checked=${form.fence} onChange=${set("fence")} />Refuse every write that carries no fencing token</label>
  <//>`;
}
