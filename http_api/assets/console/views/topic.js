// A topic: its partitions, its configuration, and what can be done to it.

import { html, useMemo, useRef, useState } from "../vendor/preact.js";
import { ask, path, withQuery } from "../parts/api.js";
import { bytes, count, plural, rate, span } from "../parts/format.js";
import { readAgain, useGet } from "../parts/live.js";
import { Order } from "../parts/order.js";
import { deletionPlan, fence, fencePlan, ranges } from "../parts/plans.js";
import { may } from "../parts/rights.js";
import { change, go, link } from "../parts/router.js";
import { Answer, Blast, Card, Chip, Dialog, Empty, Facts, Field, Holder, Page, Pager, Search, Table, When } from "../parts/ui.js";

const SIZE = 100;
/** In a cluster of so many nodes a topic has three replicas, unless its creator asked for another number. */
const REPLICATED_FROM_NODES = 3;

export function Topic({ name, query }) {
  const find = query.find || "";
  const first = Number(query.first || 0);
  const topic = useGet(path`/v1/topics/${name}/partitions`, { first, n: SIZE, find });
  const [opened, open] = useState("");
  const acts = topic.data && html`
    ${may("admin", "topic", name) && html`<button onClick=${() => open("change")}>Change</button>`}
    ${may("evict", "topic", name) && html`<button onClick=${() => open("evict")}>Evict writers</button>`}
    ${may("admin", "topic", name) && html`<button class="danger" onClick=${() => open("delete")}>Delete</button>`}`;
  return html`<${Page} title=${name} crumbs=${[["Topics", ["topics"]]]} acts=${acts}>
    <${Answer} of=${topic}>
      ${(seen) => html`
        <${Summary} topic=${seen} isWhole=${!find} />
        <${Single} name=${name} partitions=${seen.partitions} />
        <${Partitions} topic=${seen} find=${find} first=${first} />
        <${Configuration} topic=${seen} />
        ${opened && html`<${Asked} topic=${seen} what=${opened} onClose=${() => open("")} />`}
      `}
    <//>
  <//>`;
}

function Asked({ topic, what, onClose }) {
  if (what === "change") return html`<${Change} name=${topic.name} onClose=${onClose} />`;
  if (what === "evict") return html`<${Evict} name=${topic.name} partitions=${null} onClose=${onClose} />`;
  return html`<${Delete} name=${topic.name} onClose=${onClose} />`;
}

function Summary({ topic, isWhole }) {
  const leaders = new Map();
  for (const each of topic.partitions) leaders.set(each.leader_node, (leaders.get(each.leader_node) || 0) + 1);
  const held = topic.partitions.filter((each) => each.slot_mode && each.slot_mode !== "Shared").length;
  const copies = topic.partitions.length ? topic.partitions.map((each) => each.replicas.length) : [topic.replication_factor];
  const [least, most] = [Math.min(...copies), Math.max(...copies)];
  const isPart = topic.partitions.length < topic.total ? ", on this page" : "";
  return html`<div class="figures">
    ${isWhole && html`<div><b>${count(topic.total)}</b><span>${topic.total === 1 ? "partition" : "partitions"}</span></div>`}
    <div><b>${least === most ? most : `${least}–${most}`}</b><span>${most === 1 ? "replica" : "replicas"} each${isPart}</span></div>
    <div><b>${topic.config.require_fence ? "yes" : "no"}</b><span>token required</span></div>
    <div><b>${count(held)}</b><span>${held === 1 ? "slot held" : "slots held"}${isPart}</span></div>
    <div class="wide"><b class="chips">${[...leaders].sort().map(([node, led]) => html`<${Chip} kind=${node ? "" : "bad"}>${node || "no leader"} ${count(led)}<//>`)}</b><span>leaders${isPart}</span></div>
    ${topic.sealed && html`<div><b><${Chip} kind="warn">sealed<//></b><span>takes no more records</span></div>`}
  </div>`;
}

/** Whether there are nodes for three replicas of a partition. */
export const hasRoom = (cluster) => cluster?.nodes.length >= REPLICATED_FROM_NODES;

/** What one replica means for so many partitions. */
export const lostWith = (partitions) => `${partitions === 1 ? "it" : "each"} is lost with the disk of its node, and stops with that node`;

/** That partitions have one replica, in a cluster that has room for more. */
export function Single({ name, partitions }) {
  const cluster = useGet("/v1/cluster");
  const single = partitions.filter((each) => each.replicas.length === 1);
  if (!single.length || !hasRoom(cluster.data)) return null;
  const [{ partition, replicas: [here] }] = single;
  const others = cluster.data.nodes.map((node) => node.node_id).filter((node) => node !== here);
  const which = `${single.length === 1 ? "Partition" : "Partitions"} ${ranges(single.map((each) => each.partition))}`;
  return html`<p class="banner warn">${which} ${single.length === 1 ? "has" : "have"} one replica: ${lostWith(single.length)}.
    More: <code>stockade cluster move ${name} ${partition} ${[here, ...others.slice(0, 2)].join(",")}</code></p>`;
}

/** Between two readings of a rate: one that follows at once, after an event, would only show when it came. */
const RATE_MS = 1500;

/** Records a second that came to each partition between two readings. */
function useRatesOf(topic) {
  const before = useRef({ at: 0, ends: new Map(), rates: new Map() });
  return useMemo(() => {
    const at = Date.now();
    const { at: then, ends } = before.current;
    const isNew = topic.partitions.some((each) => !ends.has(each.partition));
    if (at - then < RATE_MS && !isNew) return before.current.rates;
    const rates = new Map();
    for (const { partition, log_end: end } of topic.partitions) {
      if (end !== null && ends.has(partition)) rates.set(partition, (Math.max(0, end - ends.get(partition)) * 1000) / Math.max(1, at - then));
    }
    before.current = { at, rates, ends: new Map(topic.partitions.map((each) => [each.partition, each.log_end])) };
    return rates;
  }, [topic]);
}

/** The leader first; of another replica, how far it is behind. */
export function Replicas({ partition }) {
  const { replicas, leader_node: leader, lags } = partition;
  const ordered = [...replicas].sort((one, other) => (other === leader) - (one === leader));
  return html`<span class="chips">
    ${!leader && html`<${Chip} kind="bad">no leader<//>`}
    ${ordered.map((node) => {
      const lag = node === leader ? 0 : lags?.[node] || 0;
      return html`<${Chip} kind=${node === leader ? "accent" : lag ? "warn" : ""} title=${lag ? `${node} lacks ${plural(lag, "entry", "entries")}` : undefined}>${node}${lag ? ` −${count(lag)}` : ""}<//>`;
    })}
  </span>`;
}

function Partitions({ topic, find, first }) {
  const rates = useRatesOf(topic);
  return html`
    <div class="filters">
      <${Search} label="Filter partitions" placeholder="Number, leader, writer, client or “free”" value=${find} onInput=${(text) => change({ find: text, first: "" })} />
    </div>
    <${Card} flush>
      <${Table} label="Partitions" heads=${["Partition", "May write", { text: "Epoch", end: true }, "Since", { text: "Records", end: true }, { text: "A second", end: true }, "Replicas, leader first"]}
        rows=${topic.partitions.map((each) => ({
          key: each.partition,
          cells: [
            html`<a class="strong" href=${link(["topics", topic.name, each.partition])}>${topic.name}/${each.partition}</a>`,
            html`<${Holder} partition=${each} />`,
            each.topic_epoch ?? "–",
            html`<${When} at=${each.holder?.since_unix_ms} />`,
            each.log_end === null ? "–" : count(each.log_end - each.log_start),
            rate(rates.get(each.partition)),
            html`<${Replicas} partition=${each} />`,
          ],
        }))}
        empty=${html`<${Empty} title="No partition is like this" />`} />
      <${Pager} first=${first} size=${SIZE} total=${topic.total} onMove=${(to) => change({ first: to || "" })} />
    <//>`;
}

const limit = (value, words) => (value < 0 ? "no limit" : words(value));

const onDisks = ({ local_retention_ms: age, local_retention_bytes: size }) =>
  [age >= 0 && span(age), size >= 0 && bytes(size)].filter(Boolean).join(", ") || "all";

function Configuration({ topic }) {
  const config = topic.config;
  return html`<${Card} title="Configuration">
    <${Facts} facts=${[
      ["Topic id", topic.topic_id],
      ["Fencing token", config.require_fence ? "required" : "not required"],
      ["Writer group", config.writer_group || "none"],
      ["Kept for", limit(config.retention_ms, span)],
      ["Kept up to", limit(config.retention_bytes, bytes)],
      ["Of it on the nodes' disks", onDisks(config)],
      ["Appends refused beyond", limit(config.quota_bytes ?? -1, bytes)],
      ["Largest batch", bytes(config.max_batch_bytes)],
      ["Message ids remembered for", config.dedupe_window_ms ? span(config.dedupe_window_ms) : "not at all"],
      ["Idle producers forgotten after", span(config.producer_ttl_ms)],
      ["Producers at most", count(config.max_producers)],
      ["Repeated old batches", config.strict_sequence ? "refused" : "answered as duplicates"],
    ]} />
  <//>`;
}

/** Of the topic as it was when that was asked for; the page around it shows some of the partitions, and changes. */
function Change({ name, onClose }) {
  const whole = useGet(path`/v1/topics/${name}/partitions`, { n: 1 });
  return whole.data && html`<${ChangeOf} seen=${whole.data} onClose=${onClose} />`;
}

function ChangeOf({ seen, onClose }) {
  const [topic] = useState(seen);
  const { config } = topic;
  const [form, setForm] = useState({
    partitions: topic.total,
    fence: config.require_fence,
    hours: config.retention_ms < 0 ? "" : config.retention_ms / 3600e3,
    size: config.retention_bytes < 0 ? "" : config.retention_bytes / 2 ** 20,
    quota: (config.quota_bytes ?? -1) < 0 ? "" : config.quota_bytes / 2 ** 20,
    sealed: topic.sealed,
  });
  const set = (name) => (event) => setForm({ ...form, [name]: event.target.type === "checkbox" ? event.target.checked : event.target.value });
  const change = async () => {
    const wanted = {
      require_fence: form.fence,
      retention_ms: form.hours === "" ? -1 : Math.round(Number(form.hours) * 3600e3),
      retention_bytes: form.size === "" ? -1 : Math.round(Number(form.size) * 2 ** 20),
      quota_bytes: form.quota === "" ? -1 : Math.round(Number(form.quota) * 2 ** 20),
    };
    const changed = Object.fromEntries(Object.entries(wanted).filter(([key, value]) => (config[key] ?? -1) !== value));  // a node of older software has no quotas
    const body = {};
    if (Object.keys(changed).length) body.config = changed;
    if (Number(form.partitions) !== topic.total) body.partitions = Number(form.partitions);
    if (form.sealed && !topic.sealed) body.sealed = true;
    if (Object.keys(body).length) await ask("PATCH", `${path`/v1/topics/${topic.name}`}?topic_id=${topic.topic_id}`, { body });
    readAgain();
  };
  return html`<${Dialog} title=${`Change ${topic.name}`} act="Change" onDo=${change} onClose=${onClose}>
    <${Field} label="Partitions" hint="Records with a key go to other partitions from then on"><input type="number" min=${topic.total} required value=${form.partitions} onInput=${set("partitions")} /><//>
    <div class="two">
      <${Field} label="Keep for (hours)" hint="Empty: for ever"><input type="number" min="0" step="any" value=${form.hours} onInput=${set("hours")} /><//>
      <${Field} label="Keep up to (MiB a partition)" hint="Empty: no limit"><input type="number" min="0" step="any" value=${form.size} onInput=${set("size")} /><//>
    </div>
    <${Field} label="Refuse appends beyond (MiB a partition)" hint="Empty: no limit"><input type="number" min="0" step="any" value=${form.quota} onInput=${set("quota")} /><//>
    <label class="check"><input type="checkbox" checked=${form.fence} onChange=${set("fence")} />Refuse every write that carries no fencing token</label>
    <label class="check"><input type="checkbox" checked=${form.sealed} disabled=${topic.sealed} onChange=${set("sealed")} />Sealed: no more records, for ever</label>
    ${form.sealed && !topic.sealed && html`<${Blast}><p>Every write to ${plural(topic.total, "partition")} is refused from now on. This cannot be undone.</p><//>`}
    ${(form.hours !== "" || form.size !== "") && html`<${Blast}><p>Records that are older, or beyond the size to keep, are dropped from all ${plural(topic.total, "partition")}, for good.</p><//>`}
  <//>`;
}

/** End the grants on some partitions (null: all of the topic), as an operator. */
export function Evict({ name, partitions, title, onClose }) {
  const [reason, setReason] = useState("");
  const where = partitions === null ? name : `${name}/${ranges(partitions)}`;
  const evict = async (plan) => {
    await fence(plan, partitions, reason.trim());
    readAgain();
  };
  return html`<${Order} title=${title || `Evict the writers of ${where}`} act="Evict" look=${(options) => fencePlan(name, partitions, options)} reason=${reason} onDo=${evict} onClose=${onClose}>
    <${Field} label="Reason" hint="Shown in the slot's history"><input autofocus maxlength="200" value=${reason} onInput=${(event) => setReason(event.target.value)} /><//>
  <//>`;
}

function Delete({ name, onClose }) {
  const drop = async (plan) => {
    await ask("DELETE", withQuery(path`/v1/topics/${name}`, plan.conditions));
    go(["topics"]);
    readAgain();
  };
  return html`<${Order} title=${`Delete ${name}`} act="Delete for good" confirm=${name} look=${(options, tell) => deletionPlan(name, options, tell)} onDo=${drop} onClose=${onClose} />`;
}
