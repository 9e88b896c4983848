// Sessions, what each holds, and the end of it.

import { html, useState } from "../vendor/preact.js";
import { get, path } from "../parts/api.js";
import { count, plural, span, visible } from "../parts/format.js";
import { readAgain, useGet, useLive } from "../parts/live.js";
import { Order } from "../parts/order.js";
import { fenceSession, sessionPlan } from "../parts/plans.js";
import { may } from "../parts/rights.js";
import { change, link } from "../parts/router.js";
import { Answer, Card, Dialog, Empty, Field, Left, Page, Search, Table } from "../parts/ui.js";
import { Evict } from "./topic.js";

const MOST = 200;
const HELD_MAX = 1000;

export function Sessions({ query }) {
  const find = query.find || "";
  const [evicting, evict] = useState(null);
  const [ending, end] = useState(null);
  const isAll = query.all === "1";
  const sessions = useGet("/v1/sessions", { prefix: find, n: MOST, holding: isAll ? "" : "true" });
  return html`<${Page} title="Sessions and grants" note="A session stands for a client, and ends unless it is renewed. Its grants, its place in line and its resources end with it.">
    <div class="filters">
      <${Search} label="Client" placeholder="How the client's name begins" value=${find} onInput=${(text) => change({ find: text })} />
      <label class="check"><input type="checkbox" checked=${isAll} onChange=${() => change({ all: isAll ? "" : "1" })} />Also those that hold nothing</label>
      ${sessions.data && html`<span class="soft">${found(sessions.data)}</span>`}
    </div>
    <${Card} flush>
      <${Answer} of=${sessions}>
        ${(answer) => html`<${Table} label="Sessions"
          heads=${["Client", "Holds", "As writer", { text: "Held for", end: true }, { text: "Resources", end: true }, { text: "Ends in", end: true }, ""]}
          rows=${answer.sessions.flatMap((session, place) => rowsOf(session, place, evict, end))}
          empty=${find ? html`<${Empty} title=${isAll ? "No client's name begins so" : "No such client holds anything"} />` : html`<${Empty} title=${isAll ? "No client has a session" : "No session holds anything"}>Producers that write exclusively, and consumers of a group, open one.<//>`} />`}
      <//>
    <//>
    ${evicting && html`<${EndGrant} grant=${evicting} onClose=${() => evict(null)} />`}
    ${ending && html`<${EndSession} session=${ending} onClose=${() => end(null)} />`}
  <//>`;
}

const found = ({ total, sessions }) =>
  sessions.length < total ? `The first ${count(sessions.length)} of ${count(total)}; a longer beginning finds the others` : plural(total, "session");

/** A line for each grant; a session without any has a line, too. */
function rowsOf(session, place, evict, end) {
  const client = html`<b>${visible(session.client_id)}</b><code class="two-lines">${session.handle}</code>`;
  const ending = session.handle && may("admin", "cluster") && html`<button class="small danger" onClick=${() => end(session)}>End session</button>`;
  const tail = [session.resources || html`<span class="soft">0</span>`, html`<${Left} ms=${session.remaining_ms} />`];
  if (!session.grants.length) {
    return [{ key: place, cells: [client, html`<span class="soft">no grant</span>`, "", "", ...tail, ending] }];
  }
  return session.grants.map((grant, number) => ({
    key: grant.grant,
    cells: [
      number ? "" : client,
      html`<a href=${link(["topics", grant.topic], { find: grant.producer_name })}>${grant.topic}</a>, ${plural(grant.partitions, "partition")}`,
      html`${visible(grant.producer_name)}<span class="two-lines">${grant.mode}${grant.epoch === null ? "" : `, epoch ${grant.epoch}`}</span>`,
      span(grant.held_ms),
      ...(number ? ["", ""] : tail),
      html`<span class="stack">${may("evict", "topic", grant.topic) && html`<button class="small danger" onClick=${() => evict({ ...grant, client_id: session.client_id })}>End grant</button>`}${!number && ending}</span>`,
    ],
  }));
}

/** All that the session holds ends with it, of any principal. */
function EndSession({ session, onClose }) {
  const [reason, setReason] = useState("");
  const end = async (plan) => {
    await fenceSession(session, plan, reason.trim());
    readAgain();
  };
  return html`<${Order} title=${`End the session of ${session.client_id}`} act="End it" look=${(options) => sessionPlan(session, options)} reason=${reason} onDo=${end} onClose=${onClose}>
    <${Field} label="Reason" hint="Shown in the slots' histories and in the ledger"><input autofocus maxlength="200" value=${reason} onInput=${(event) => setReason(event.target.value)} /><//>
  <//>`;
}

/** An operator ends a grant by fencing the partitions that it holds; a shared one ends with all others of its topic. */
function EndGrant({ grant, onClose }) {
  const held = useLive(
    async (signal) => {
      const page = await get(path`/v1/topics/${grant.topic}/partitions`, { find: grant.grant, n: HELD_MAX }, { signal });
      return page.partitions.filter((each) => each.holder?.grant === grant.grant).map((each) => each.partition);
    },
    [grant.grant],
    0,
  );
  if (!held.data) return null;
  const isShared = grant.epoch === null;
  if (!isShared && !held.data.length) {
    return html`<${Dialog} title=${`End the grant of ${grant.producer_name}`} act="Close" onDo=${async () => {}} onClose=${onClose}>
      <p>It has ended already: it holds no partition of ${grant.topic} any more.</p>
    <//>`;
  }
  const partitions = isShared ? null : held.data;
  return html`<${Evict} name=${grant.topic} partitions=${partitions} title=${`End the grant of ${grant.producer_name}`} onClose=${onClose} />`;
}
