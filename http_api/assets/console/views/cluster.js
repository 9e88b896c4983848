// Membership, leaders, moves under way, versions.

import { html, useState } from "../vendor/preact.js";
import { ask, path, get } from "../parts/api.js";
import { bytes, count, plural } from "../parts/format.js";
import { readAgain, useGet, useLive } from "../parts/live.js";
import { may } from "../parts/rights.js";
import { link } from "../parts/router.js";
import { useClusterState } from "../parts/state.js";
import { Answer, Blast, Card, Chip, Dialog, Dot, Empty, Facts, Field, Page, Table } from "../parts/ui.js";

export function Cluster() {
  const cluster = useGet("/v1/cluster");
  const { latest } = useClusterState();
  const [removing, remove] = useState(null);
  const [adding, add] = useState(false);
  const states = latest?.nodes || [];
  const versions = [...new Set(states.map((each) => each.version))];
  return html`<${Page} title="Cluster" acts=${may("admin", "cluster") && html`<button onClick=${() => add(true)}>Add a node</button>`}>
    <${Answer} of=${cluster}>
      ${(seen) => html`
        <${Card}>
          <${Facts} facts=${[
            ["Cluster", seen.cluster_id],
            ["Seen from", seen.node_id],
            ["Controller", seen.controller.leader_node ? `${seen.controller.leader_node}, term ${seen.controller.leader_term}` : html`<${Chip} kind="bad">no leader<//>`],
            ["Controller group", (seen.controllers || []).join(", ")],
            ["Versions", versions.length > 1 ? html`<${Chip} kind="warn">${versions.join(", ")}<//>` : versions[0] || seen.version],
          ]} />
        <//>
        <${Members} cluster=${seen} states=${states} remove=${remove} />
        <${Moves} moves=${seen.reassignments || []} />
        ${removing && html`<${Remove} node=${removing} state=${states.find((each) => each.node_id === removing.node_id)} onClose=${() => remove(null)} />`}
        ${adding && html`<${Add} onClose=${() => add(false)} />`}
      `}
    <//>
  <//>`;
}

function Members({ cluster, states, remove }) {
  const stateOf = (node) => states.find((each) => each.node_id === node.node_id);
  return html`<${Card} title="Nodes" side=${plural(cluster.nodes.length, "node")} flush>
    <${Table} label="Nodes"
      heads=${["Node", "State", "Zone", "HTTP", "Raft", { text: "Leads", end: true }, { text: "Replicas", end: true }, { text: "Disk left", end: true }, { text: "Clients", end: true }, "Version", ""]}
      rows=${cluster.nodes.map((node) => {
        const state = stateOf(node);
        return {
          key: node.node_id,
          cells: [
            html`<span class="chips"><b>${node.node_id}</b>${node.node_id === cluster.controller.leader_node && html`<${Chip} kind="accent">controller<//>`}</span>`,
            html`<span class="connection"><${Dot} kind=${node.alive ? "good" : "bad"} label="" />${node.alive ? (node.draining ? "draining" : "up") : "away"}</span>`,
            node.zone || "–",
            html`<span class="mono">${node.url}</span>`,
            html`<span class="mono">${node.raft_address}</span>`,
            count(state?.partitions.led),
            count(state?.partitions.replicas),
            bytes(state?.disk.free_bytes),
            count(state?.connections),
            state?.version || "–",
            may("admin", "cluster") && html`<button class="small danger" disabled=${node.draining} onClick=${() => remove(node)}>Remove</button>`,
          ],
        };
      })} />
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
      empty=${html`<${Empty} title="Nothing moves">Removing a node, and stockade cluster move, move replicas; the progress is here.<//>`} />
  <//>`;
}

function Remove({ node, state, onClose }) {
  const remove = async () => {
    await ask("POST", "/v1/cluster/members", { body: { action: "remove", node_id: node.node_id } });
    readAgain();
  };
  return html`<${Dialog} title=${`Remove ${node.node_id}`} act="Remove it" kind="danger" confirm=${node.node_id} onDo=${remove} onClose=${onClose}>
    <${Blast}>
      <p>${state ? `${plural(state.partitions.replicas, "replica")} ${state.partitions.replicas === 1 ? "moves" : "move"} to other nodes, and ${plural(state.partitions.led, "leadership")} with them.` : "All its replicas move to other nodes."} Their bytes are copied over the network.</p>
      <p>When that is done, ${node.node_id} is no member any more. With too few nodes left the cluster refuses this.</p>
    <//>
  <//>`;
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
    <p class="soft">Makes the node known; then start it with its node.toml. Existing partitions stay where they are.</p>
    <${Field} label="Node id"><input required autofocus value=${form.node_id} onInput=${set("node_id")} /><//>
    <${Field} label="Base URL of its HTTP interface"><input required type="url" value=${form.url} onInput=${set("url")} /><//>
    <${Field} label="Raft address, host:port"><input required value=${form.raft_address} onInput=${set("raft_address")} /><//>
    <${Field} label="Zone" hint="Replicas of a partition go to different zones"><input value=${form.zone} onInput=${set("zone")} /><//>
  <//>`;
}
