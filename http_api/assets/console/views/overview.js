// The cluster in a sentence, its nodes, what they do, and what needs attention.

import { html } from "../vendor/preact.js";
import { get, path } from "../parts/api.js";
import { Chart } from "../parts/chart.js";
import { bytes, count, plural, rate, span } from "../parts/format.js";
import { useGet, useLive } from "../parts/live.js";
import { link } from "../parts/router.js";
import { useClusterState } from "../parts/state.js";
import { Answer, Card, Chip, Dot, Empty, Page, Table, When } from "../parts/ui.js";

const REFUSED_MAX = 1000;
const RECENT_MS = 3600e3;
/** A disk with less room than this share of it is worth a look, and with less than that, soon. */
const DISK_LOW = 0.15;
const DISK_FULL = 0.05;

/** What an operator should look at, the worst first: { kind, text, act }. */
export function attention(cluster, states, refused) {
  const found = [];
  if (!cluster.controller.leader_node) {
    found.push({ kind: "bad", text: "No controller leads: no topic changes, and no writer takes over, until one does.", act: ["cluster"] });
  }
  for (const node of cluster.nodes.filter((each) => !each.alive)) {
    found.push({ kind: "bad", text: `${node.node_id} is away. Partitions go on while a majority of their replicas is there.`, act: ["cluster"] });
  }
  for (const { node_id: id, disk, partitions } of states) {
    const left = disk.free_bytes / disk.total_bytes;
    if (left < DISK_LOW) found.push({ kind: left < DISK_FULL ? "bad" : "warn", text: `The disk of ${id} has ${bytes(disk.free_bytes)} left, ${Math.floor(left * 100)} %.`, act: ["cluster"] });
    if (partitions.under_replicated) found.push({ kind: "warn", text: `${plural(partitions.under_replicated, "partition")} of ${id} ${partitions.under_replicated === 1 ? "has" : "have"} a replica that is behind.`, act: ["cluster"] });
    if (partitions.leaderless) found.push({ kind: "bad", text: `${id} knows no leader of ${plural(partitions.leaderless, "partition")}: they take no writes.`, act: ["topics"] });
  }
  for (const node of cluster.nodes.filter((each) => each.draining)) {
    found.push({ kind: "warn", text: `${node.node_id} is being drained.`, act: ["cluster"] });
  }
  if (cluster.reassignments?.length) {
    found.push({ kind: "warn", text: `${plural(cluster.reassignments.length, "partition")} on the move.`, act: ["cluster"] });
  }
  const recent = refused.filter((write) => Date.now() - write.at_ms < RECENT_MS);
  const places = new Set(recent.map((write) => `${write.topic}/${write.partition}`));
  if (recent.length) {
    const most = recent.length >= REFUSED_MAX ? "At least " : "";
    found.push({ kind: "warn", text: `${most}${plural(recent.length, "write")} refused in the last hour, on ${plural(places.size, "partition")}.`, act: ["refused"] });
  }
  return found;
}

/** Health in a sentence. */
export function sentence(cluster, topics, found) {
  const alive = cluster.nodes.filter((node) => node.alive).length;
  const all = cluster.nodes.length;
  const nodes = alive === all ? `All ${plural(all, "node")} ${all === 1 ? "is" : "are"} up` : `${alive} of ${plural(all, "node")} are up`;
  const partitions = topics.reduce((sum, topic) => sum + topic.partitions, 0);
  const what = topics.length ? `${plural(topics.length, "topic")} with ${plural(partitions, "partition")}` : "no topic yet";
  const rest = found.length ? `${plural(found.length, "thing")} to look at` : "nothing needs you";
  return `${nodes}; ${what}; ${rest}.`;
}

export function Overview() {
  const { latest, points } = useClusterState();
  const cluster = useGet("/v1/cluster");
  const topics = useGet("/v1/topics");
  const refused = useGet("/v1/refused_writes", { n: REFUSED_MAX, everywhere: "true" });
  const states = latest?.nodes || [];
  return html`<${Page} title="Overview">
    <${Answer} of=${cluster}>
      ${(seen) => {
        const found = attention(seen, states, refused.data?.refused_writes || []);
        const worst = found.some((each) => each.kind === "bad") ? "bad" : found.length ? "warn" : "good";
        return html`
          <p class="sentence"><${Dot} kind=${worst} label=${worst} />${topics.data ? sentence(seen, topics.data.topics, found) : "…"}</p>
          ${topics.data?.topics.length === 0 && html`<${FirstRun} />`}
          <${Attention} found=${found} />
          ${points.length > 0 && html`<${Work} points=${points} />`}
          <${Nodes} cluster=${seen} states=${states} />
          <${Pens} topics=${topics.data?.topics || []} />
        `;
      }}
    <//>
  <//>`;
}

function FirstRun() {
  return html`<section class="card first-run" aria-label="See a zombie refused">
    <h2>See a zombie refused</h2>
    <p>A writer stalls. Another one takes its place. The first one wakes up and writes on, and the log refuses it. The drill plays
      this on a topic of its own, on this cluster, in a few seconds.</p>
    <p class="acts"><a class="button" href=${link(["drill"], { start: "1" })}>Start the fence drill</a>
      <a class="button quiet" href=${link(["topics"], { create: "1" })}>Create a topic</a></p>
  </section>`;
}

function Attention({ found }) {
  if (!found.length) return null;
  return html`<${Card} title="Needs attention">
    <ul class="attention">
      ${found.map(
        (each) => html`<li><${Dot} kind=${each.kind} label=${each.kind} /><span>${each.text}</span>
          ${each.act && html`<a href=${link(each.act)} aria-label=${`Look: ${each.text}`}>Look</a>`}</li>`,
      )}
    </ul>
  <//>`;
}

const latestOf = (points, name) => points.at(-1)?.[name];

/** What all nodes do together: a figure and its line. */
function Work({ points }) {
  const last = (name) => [...points].reverse().find((each) => each[name] !== null)?.[name];
  const half = (name) => `99 % within; half within ${span(last(name))}`;
  const charts = [
    ["Records stored", rate(latestOf(points, "records")), `a second, ${bytes(latestOf(points, "bytes"))}`, [{ name: "records", color: "--accent", fill: "--accent-soft" }], rate],
    ["Append latency", span(last("p99")), half("p50"), [{ name: "p99", color: "--accent" }, { name: "p50", color: "--soft" }], span],
    ["Sync of the log", span(last("sync99")), half("sync50"), [{ name: "sync99", color: "--accent" }, { name: "sync50", color: "--soft" }], span],
    ["Writes refused", rate(latestOf(points, "refused")), "a second", [{ name: "refused", color: "--bad", fill: "--bad-soft" }], rate],
  ];
  return html`<div class="work">
    ${charts.map(
      ([title, figure, unit, lines, format]) => html`<section class="card" aria-label=${title}>
        <h2>${title}</h2>
        <p class="figure"><b>${figure}</b> <span>${unit}</span></p>
        <${Chart} points=${points} lines=${lines} format=${format} words=${`${title} over the last ten minutes; now ${figure} ${unit}`} />
      </section>`,
    )}
  </div>`;
}

function Nodes({ cluster, states }) {
  const zones = [...new Set(cluster.nodes.map((node) => node.zone))];
  return html`<${Card} title="Nodes" side=${zones.some(Boolean) && plural(zones.filter(Boolean).length, "zone")}>
    ${zones.map(
      (zone) => html`<div class="zone">
        ${zone && html`<h3>${zone}</h3>`}
        <div class="nodes">
          ${cluster.nodes
            .filter((node) => node.zone === zone)
            .map((node) => html`<${Node} key=${node.node_id} node=${node} cluster=${cluster} state=${states.find((each) => each.node_id === node.node_id)} />`)}
        </div>
      </div>`,
    )}
  <//>`;
}

function Node({ node, cluster, state }) {
  const { leader_node: controller, leader_term: term } = cluster.controller;
  const used = state && 1 - state.disk.free_bytes / state.disk.total_bytes;
  return html`<article class=${`node ${node.alive ? "" : "away"}`}>
    <header><${Dot} kind=${node.alive ? "good" : "bad"} label=${node.alive ? "up" : "away"} /><b>${node.node_id}</b>
      ${node.node_id === controller && html`<${Chip} kind="accent" title=${`leads the controller group in term ${term}`}>controller<//>`}
      ${node.draining && html`<${Chip} kind="warn">draining<//>`}
    </header>
    <p class="soft mono">${node.url.replace(/^https?:\/\//, "")}</p>
    ${state &&
    html`<dl>
      <div><dt>leads</dt><dd>${count(state.partitions.led)} of ${count(state.partitions.replicas)}</dd></div>
      <div><dt>clients</dt><dd>${count(state.connections)}</dd></div>
      <div><dt>disk left</dt><dd>${bytes(state.disk.free_bytes)}</dd></div>
    </dl>
    <meter min="0" max="1" high=${1 - DISK_LOW} value=${used} aria-label=${`Disk of ${node.node_id} in use`}></meter>`}
  </article>`;
}

const TOPICS_SHOWN = 12;
const HELD_SHOWN = 12;
const PARTITIONS_SHOWN = 100;

/** The writers that hold slots now, the latest first: what only the cluster knows. */
function Pens({ topics }) {
  const shown = topics.slice(0, TOPICS_SHOWN);
  const held = useLive(
    async (signal) => {
      const all = await Promise.all(shown.map((topic) => get(path`/v1/topics/${topic.name}/partitions`, { n: PARTITIONS_SHOWN }, { signal })));
      return all.flatMap((topic) => topic.partitions.filter((each) => each.holder).map((each) => ({ topic: topic.name, ...each })));
    },
    [shown.map((topic) => topic.name).join()],
  );
  if (!topics.length || !held.data) return null;
  const rows = [...held.data].sort((one, other) => (other.holder.since_unix_ms || 0) - (one.holder.since_unix_ms || 0));
  return html`<${Card} title="Who holds the pen" side=${plural(rows.length, "slot")} flush>
    <${Table} label="Holders of slots"
      heads=${["Partition", "Writer", "Client", "Mode", { text: "Epoch", end: true }, "Since", "Leader"]}
      rows=${rows.slice(0, HELD_SHOWN).map((each) => ({
        key: `${each.topic}/${each.partition}`,
        cells: [
          html`<a class="strong" href=${link(["topics", each.topic, each.partition])}>${each.topic}/${each.partition}</a>`,
          html`<b>${each.holder.producer_name}</b>`,
          each.holder.client_id || "–",
          each.holder.mode,
          count(each.topic_epoch),
          html`<${When} at=${each.holder.since_unix_ms} />`,
          each.leader_node || html`<${Chip} kind="bad">none<//>`,
        ],
      }))}
      empty=${html`<${Empty} title="No writer holds a slot">A writer that calls acquire, or producer.exclusive(…) in Python, appears here with its epoch.<//>`} />
    ${topics.length > TOPICS_SHOWN && html`<p class="log-note">Of the first ${TOPICS_SHOWN} topics; <a href=${link(["topics"])}>all topics</a>.</p>`}
  <//>`;
}
