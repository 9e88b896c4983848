// Producers with names, and what the partitions know of each.

import { html, useState } from "../vendor/preact.js";
import { ask, path } from "../parts/api.js";
import { count, plural, visible } from "../parts/format.js";
import { readAgain, useGet } from "../parts/live.js";
import { may } from "../parts/rights.js";
import { change, link } from "../parts/router.js";
import { Answer, Blast, Card, Dialog, Empty, Page, Search, Table, When } from "../parts/ui.js";

const MOST = 200;

export function Producers({ query, rest }) {
  return rest.length ? html`<${Producer} key=${rest[0]} name=${rest[0]} />` : html`<${AllProducers} query=${query} />`;
}

function AllProducers({ query }) {
  const find = query.find || "";
  const internal = query.internal === "1";
  const producers = useGet("/v1/producers", { prefix: find, n: MOST, internal: internal ? "true" : "" });
  return html`<${Page} title="Producers" note="A producer's id and epoch make its retries harmless: each batch is stored once.">
    <div class="filters">
      <${Search} label="Producer" placeholder="How the name begins" value=${find} onInput=${(text) => change({ find: text })} />
      <label class="check"><input type="checkbox" checked=${internal} onChange=${() => change({ internal: internal ? "" : "1" })} />With names drawn for one run</label>
      ${producers.data && html`<span class="soft">${producers.data.producers.length < producers.data.total ? `The first ${count(producers.data.producers.length)} of ${count(producers.data.total)}` : plural(producers.data.total, "producer")}</span>`}
    </div>
    <${Card} flush>
      <${Answer} of=${producers}>
        ${(answer) => html`<${Table} label="Producers" heads=${["Name", { text: "Id", end: true }, { text: "Epoch", end: true }]}
          rows=${answer.producers.map((each) => ({
            key: each.producer_id,
            cells: [html`<a class="strong" href=${link(["producers", each.name])}>${visible(each.name)}</a>`, each.producer_id, each.producer_epoch],
          }))}
          empty=${html`<${Empty} title=${find ? "No producer's name begins so" : "No producer has a name yet"}>${!find && "Give a producer a name, and its epoch fences older instances of it."}<//>`} />`}
      <//>
    <//>
  <//>`;
}

function Producer({ name }) {
  const producer = useGet(path`/v1/producers/${name}`);
  const [fencing, setFencing] = useState(false);
  const known = producer.data;
  const acts = known?.name && may("evict", "producer", known.name) && html`<button class="danger" onClick=${() => setFencing(true)}>Fence</button>`;
  const fence = async () => {
    await ask("POST", "/v1/cluster/producer_fences", { body: { name: known.name } });
    readAgain();
  };
  return html`<${Page} title=${known?.name || name} crumbs=${[["Producers", ["producers"]]]} acts=${acts}
    note=${known && `id ${known.producer_id}, epoch ${known.producer_epoch ?? "of its own"}`}>
    <${Card} title="Where it has written" flush>
      <${Answer} of=${producer}>
        ${(answer) => html`<${Table} label="Partitions"
          heads=${["Partition", { text: "Epoch", end: true }, { text: "Last sequence", end: true }, { text: "Last offset", end: true }, "Last batch"]}
          rows=${answer.partitions.map((each) => ({
            key: `${each.topic}/${each.partition}`,
            cells: [
              html`<a class="strong" href=${link(["topics", each.topic, each.partition])}>${each.topic}/${each.partition}</a>`,
              each.producer_epoch,
              each.last_seq < 0 ? "none" : count(each.last_seq),
              count(each.last_offset),
              html`<${When} at=${each.batches.at(-1)?.timestamp_ms} />`,
            ],
          }))}
          empty=${html`<${Empty} title="No partition knows it">It has stored nothing yet, or was forgotten as idle.<//>`} />`}
      <//>
    <//>
    ${fencing &&
    html`<${Dialog} title=${`Fence ${known.name}`} act="Fence it" kind="danger" onDo=${fence} onClose=${() => setFencing(false)}>
      <${Blast}><p>The running instance of ${visible(known.name)} is refused with its next batch, on ${plural(known.partitions.length, "partition")} and everywhere else. A new instance gets the next epoch, ${known.producer_epoch + 2} at the earliest.</p><//>
    <//>`}
  <//>`;
}
