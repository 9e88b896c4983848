// Membership, leaders, moves under way, balance, backups, versions.

import { html, useState } from "../vendor/preact.js";
import { ask, path, get } from "../parts/api.js";
import { bytes, count, exact, plural, span } from "../parts/format.js";
import { readAgain, useGet, useLive } from "../parts/live.js";
import { Order } from "../parts/order.js";
import { removalPlan } from "../parts/plans.js";
import { may } from "../parts/rights.js";
import { go, link } from "../parts/router.js";
import { useClusterState } from "../parts/state.js";
import { Answer, Blast, Card, Chip, Dialog, Dot, Empty, Facts, Field, Page, Table, When } from "../parts/ui.js";
import { Balance } from "./balance.js";

export function Cluster() {
  const cluster = useGet("/v1/cluster");
  const { latest } = useClusterState();
  const [removing, remove] = useState(null);
  const [adding, add] = useState(false);
  const [raising, raise] = useState(0);
  const states = latest?.nodes || [];
  return html`<${Page} title="Cluster" acts=${may("admin", "cluster") && html`<button onClick=${() => go(["cluster", "settings"])}>Settings</button><button onClick=${() => add(true)}>Add a node</button>`}>
    <${Answer} of=${cluster}>
      ${(seen) => html`
        <${Card}>
          <${Facts} facts=${[
            ["Cluster", seen.cluster_id],
            ["Seen from", seen.node_id],
            ["Controller", seen.controller.leader_node ? `${seen.controller.leader_node}, term ${seen.controller.leader_term}` : html`<${Chip} kind="bad">no leader<//>`],
            ["Controller group", (seen.controllers || []).join(", ")],
            ["Software", html`<${Versions} cluster=${seen} />`],
            ["Feature level", html`<${Level} cluster=${seen} raise=${() => raise(commonLevel(seen.nodes))} />`],
          ]} />
        <//>
        <${Members} cluster=${seen} states=${states} remove=${remove} />
        <${Moves} moves=${seen.reassignments || []} />
        <${Balance} level=${seen.feature_level} />
        ${may("read", "cluster") && html`<${Backups} />`}
        ${removing && html`<${Remove} node=${removing} state=${states.find((each) => each.node_id === removing.node_id)} onClose=${() => remove(null)} />`}
        ${raising > 0 && html`<${Raise} cluster=${seen} level=${raising} onClose=${() => raise(0)} />`}
        ${adding && html`<${Add} onClose=${() => add(false)} />`}
      `}
    <//>
  <//>`;
}

function Versions({ cluster }) {
  const versions = [...new Set(cluster.nodes.map((node) => node.version).filter(Boolean))].sort();
  return versions.length > 1 ? html`<${Chip} kind="warn">${versions.join(", ")}: an upgrade is under way<//>` : versions[0] || cluster.version;
}

/** The newest feature level that every member supports; null while one is not known. */
function commonLevel(nodes) {
  const newest = nodes.map((node) => node.feature_levels?.newest);
  return newest.length && newest.every(Boolean) ? Math.min(...newest) : null;
}

/** What all members support is used only when an operator says so: until then each can go back to its older software. */
function Level({ cluster, raise }) {
  const common = commonLevel(cluster.nodes);
  if (!cluster.feature_level) return "–";
  if (!common || common <= cluster.feature_level) return html`${cluster.feature_level}`;
  return html`${cluster.feature_level}; all nodes support ${common}
    ${may("admin", "cluster") && html` <button class="small" onClick=${raise}>Finish the upgrade</button>`}`;
}

function Raise({ cluster, level, onClose }) {
  const raise = async () => {
    await ask("POST", "/v1/cluster/feature_level", { body: { level } });
    readAgain();
  };
  return html`<${Dialog} title=${`Raise the feature level to ${level}`} act="Raise it" kind="danger" confirm=${cluster.cluster_id} onDo=${raise} onClose=${onClose}>
    <${Blast}><ul>
      <li>The cluster uses from then on what level ${level} brought to its logs and checkpoints.</li>
      <li>No node can go back to older software, and no node with older software can join. A level never goes down.</li>
      <li>${plural(cluster.nodes.length, "node")} ${cluster.nodes.length === 1 ? "supports" : "support"} it: ${cluster.nodes.map((node) => node.node_id).join(", ")}.</li>
    </ul><//>
  <//>`;
}

function Members({ cluster, states, remove }) {
  const stateOf = (node) => states.find((each) => each.node_id === node.node_id);
  return html`<${Card} title="Nodes" side=${plural(cluster.nodes.length, "node")} flush>
    <${Table} label="Nodes"
      heads=${["Node", "State", "Addresses", { text: "Leads", end: true }, { text: "Replicas", end: true }, { text: "Clients", end: true }, { text: "Disk left", end: true }, "Certificates", "Version", ""]}
      rows=${cluster.nodes.map((node) => {
        const state = stateOf(node);
        return {
          key: node.node_id,
          cells: [
            html`<b>${node.node_id}</b>${node.node_id === cluster.controller.leader_node && html` <${Chip} kind="accent">controller<//>`}${node.zone && html`<span class="two-lines">zone ${node.zone}</span>`}`,
            html`<span class="connection"><${Dot} kind=${node.alive ? (node.draining ? "warn" : "good") : "bad"} label="" />${node.alive ? (node.draining ? "draining" : "up") : "away"}</span>`,
            html`<span class="mono">${node.url}</span><span class="two-lines mono">raft ${node.raft_address}</span>`,
            count(state?.partitions.led),
            count(state?.partitions.replicas),
            count(state?.connections),
            html`${node.disk === "ok" ? "" : html`<${Chip} kind="bad">${node.disk}<//> `}${bytes(state?.disk.free_bytes)}`,
            html`<${Certificates} state=${state} />`,
            html`${node.version || state?.version || "–"}${node.feature_levels && html`<span class="two-lines">level ${node.feature_levels.oldest} to ${node.feature_levels.newest}</span>`}`,
            may("admin", "cluster") && html`<button class="small danger" disabled=${node.draining} onClick=${() => remove(node)}>Remove</button>`,
          ],
        };
      })} />
  <//>`;
}

const DAY_MS = 86400e3;
const BACKUPS_MS = 15000;

/** Days that the certificates of a node have left, by use. */
function Certificates({ state }) {
  const found = Object.entries(state?.certificates || {});
  const refused = state?.refused_certificates || [];
  if (!found.length) return html`<span class="soft">${state ? "no TLS" : "–"}</span>`;
  return html`<span class="chips">${found.map(([use, at]) => {
    const days = Math.floor((at - Date.now()) / DAY_MS);
    if (refused.includes(use)) return html`<${Chip} kind="bad" title=${exact(at)}>${use} files refused<//>`;
    return html`<${Chip} kind=${days < 3 ? "bad" : days < 14 ? "warn" : ""} title=${exact(at)}>${use} ${days < 0 ? "expired" : `${count(days)} d`}<//>`;
  })}</span>`;
}

/** As those who made them told the cluster; it asks no place by itself. */
function Backups() {
  const backups = useGet("/v1/cluster/backups", {}, BACKUPS_MS);
  return html`<${Card} title="Backups" flush>
    <${Answer} of=${backups}>
      ${(answer) => html`<${Table} label="Backups"
        heads=${["Place", "Has everything up to", { text: "Records", end: true }, { text: "Bytes there", end: true }, { text: "Took", end: true }, "Told by"]}
        rows=${answer.backups.map((each) => ({
          key: each.place,
          cells: [
            html`<span class="mono breaks">${each.place}</span>`,
            html`<${When} at=${each.cut_ms} />`,
            count(each.records),
            bytes(each.bytes),
            span(each.took_ms),
            each.principal || html`<span class="soft">–</span>`,
          ],
        }))}
        empty=${html`<${Empty} title="No backup is known">stockade backup create PLACE makes one while writers go on, and tells the cluster.<//>`} />`}
    <//>
  <//>`;
}

/** A move is done when the partition's replicas are where they shall be. */
function Moves({ moves }) {
  const names = [...new Set(moves.map((move) => move.topic))];
  const topics = useLive(async (signal) => Promise.all(names.map((name) => get(path`/v1/topics/${name}`, {}, { signal }))), [names.join()]);
  const now = (move) => topics.data?.find((topic) => topic.name === move.topic)?.partitions[move.partition]?.replicas || [];
  return html`<${Card} title="Moves" side=${moves.length ? plural(moves.length, "partition") : ""} flush>
    <${Table} label="Moves" heads=${["Partition", "From", "To", "Progress"]}
      rows=${moves.map((move) => {
        const there = now(move);
        const done = move.replicas.filter((node) => there.includes(node)).length;
        return {
          key: `${move.topic}/${move.partition}`,
          cells: [
            html`<a class="strong" href=${link(["topics", move.topic, move.partition])}>${move.topic}/${move.partition}</a>`,
            there.join(", ") || "–",
            move.replicas.join(", "),
            html`<progress max=${move.replicas.length} value=${done} aria-label="Replicas in place"></progress> ${done} of ${move.replicas.length}`,
          ],
        };
      })}
      empty=${html`<${Empty} title="Nothing moves">Replicas move when a node is removed, for balance, or by stockade cluster move; their progress is here.<//>`} />
  <//>`;
}

function Remove({ node, state, onClose }) {
  const remove = async (plan) => {
    await ask("POST", "/v1/cluster/members", { body: { action: "remove", node_id: node.node_id, ...plan.conditions } });
    readAgain();
  };
  return html`<${Order} title=${`Remove ${node.node_id}`} act="Remove it" confirm=${node.node_id} look=${(options) => removalPlan(node.node_id, state?.partitions.led, options)} onDo=${remove} onClose=${onClose} />`;
}

function Add({ onClose }) {
  const [form, setForm] = useState({ node_id: "", url: "http://", raft_address: "", zone: "" });
  const set = (name) => (event) => setForm({ ...form, [name]: event.target.value });
  const add = async () => {
    const body = { action: "add", ...form };
    if (!body.zone) delete body.zone;
    await ask("POST", "/v1/cluster/members", { body });
    readAgain();
  };
  return html`<${Dialog} title="Add a node" act="Add" onDo=${add} onClose=${onClose}>
    <p class="soft">Makes the node known; then start it with its node.toml. Existing partitions move to it as the plan of balance says, a few at a time.</p>
    <${Field} label="Node id"><input required autofocus value=${form.node_id} onInput=${set("node_id")} /><//>
    <${Field} label="Base URL of its HTTP interface"><input required type="url" value=${form.url} onInput=${set("url")} /><//>
    <${Field} label="Raft address, host:port"><input required value=${form.raft_address} onInput=${set("raft_address")} /><//>
    <${Field} label="Zone" hint="Replicas of a partition go to different zones"><input value=${form.zone} onInput=${set("zone")} /><//>
  <//>`;
}
