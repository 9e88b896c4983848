// Sessions, what each holds, and the end of it.

import { html, useState } from "../vendor/preact.js";
import { ask, get, path } from "../parts/api.js";
import { count, plural, span } from "../parts/format.js";
import { readAgain, useGet, useLive } from "../parts/live.js";
import { may } from "../parts/rights.js";
import { change, link } from "../parts/router.js";
import { Answer, Blast, Card, Chip, Dialog, Empty, Field, Left, Page, Search, Table } from "../parts/ui.js";

const MOST = 200;
const HELD_MAX = 1000;

export function Sessions({ query }) {
  const find = query.find || "";
  const [evicting, evict] = useState(null);
  const sessions = useGet("/v1/sessions", { prefix: find, n: MOST });
  return html`<${Page} title="Sessions and grants" note="A session stands for a client. Its grants, its place in line and its resources end with it.">
    <div class="filters">
      <${Search} label="Client" placeholder="How the client's name begins" value=${find} onInput=${(text) => change({ find: text })} />
      ${sessions.data && html`<span class="soft">${found(sessions.data)}</span>`}
    </div>
    <${Card} flush>
      <${Answer} of=${sessions}>
        ${(answer) => html`<${Table} label="Sessions"
          heads=${["Client", "Holds", "Writer", "Mode", { text: "Epoch", end: true }, { text: "Held for", end: true }, { text: "Resources", end: true }, { text: "Ends in, unless renewed", end: true }, ""]}
          rows=${answer.sessions.flatMap((session, place) => rowsOf(session, place, evict))}
          empty=${find ? html`<${Empty} title="No client's name begins so" />` : html`<${Empty} title="No client has a session">Producers that write exclusively, and consumers of a group, open one.<//>`} />`}
      <//>
    <//>
    ${evicting && html`<${EndGrant} grant=${evicting} onClose=${() => evict(null)} />`}
  <//>`;
}

const found = ({ total, sessions }) =>
  sessions.length < total ? `The first ${count(sessions.length)} of ${count(total)}; a longer beginning finds the others` : plural(total, "session");

/** A line for each grant; a session without any has a line, too. */
function rowsOf(session, place, evict) {
  const client = html`<b>${session.client_id}</b>`;
  const tail = [session.resources || html`<span class="soft">0</span>`, html`<${Left} ms=${session.remaining_ms} />`];
  if (!session.grants.length) {
    return [{ key: place, cells: [client, html`<span class="soft">no grant</span>`, "", "", "", "", ...tail, ""] }];
  }
  return session.grants.map((grant, number) => ({
    key: grant.grant,
    cells: [
      number ? "" : client,
      html`<a href=${link(["topics", grant.topic], { find: grant.producer_name })}>${grant.topic}</a>, ${plural(grant.partitions, "partition")}`,
      grant.producer_name,
      grant.mode,
      grant.epoch ?? html`<span class="soft">shared</span>`,
      span(grant.held_ms),
      ...(number ? ["", ""] : tail),
      may("evict", "topic", grant.topic) && html`<button class="small danger" onClick=${() => evict({ ...grant, client_id: session.client_id })}>End</button>`,
    ],
  }));
}

/** An operator ends a grant by fencing the partitions that it holds. */
function EndGrant({ grant, onClose }) {
  const [reason, setReason] = useState("");
  const topic = useLive((signal) => get(path`/v1/topics/${grant.topic}/partitions`, { find: grant.grant, n: HELD_MAX }, { signal }), [grant.grant]);
  const held = (topic.data?.partitions || []).filter((each) => each.holder?.grant === grant.grant).map((each) => each.partition);
  const isShared = grant.epoch === null;
  const end = async () => {
    const body = { partitions: isShared ? "all" : held };
    if (reason.trim()) body.reason = reason.trim();
    await ask("POST", `${path`/v1/topics/${grant.topic}/fence`}?topic_id=${topic.data.topic_id}`, { body });
    readAgain();
  };
  return html`<${Dialog} title=${`End the grant of ${grant.producer_name}`} act="End it" kind="danger" onDo=${end} onClose=${onClose}>
    <${Blast}>
      <p>${grant.producer_name} of ${grant.client_id} holds ${plural(grant.partitions, "partition")} of ${grant.topic}. Every write under its token is refused from now on, and the next in line takes over.</p>
      ${isShared && html`<p>It shares its partitions: all writers of ${grant.topic} are evicted with it.</p>`}
      ${!isShared && topic.data && html`<p class="chips">${held.slice(0, 30).map((each) => html`<${Chip}>${grant.topic}/${each}<//>`)}${held.length > 30 ? ` and ${held.length - 30} more` : ""}</p>`}
    <//>
    <${Field} label="Reason" hint="Shown in the slots' history"><input autofocus maxlength="200" value=${reason} onInput=${(event) => setReason(event.target.value)} /><//>
  <//>`;
}
