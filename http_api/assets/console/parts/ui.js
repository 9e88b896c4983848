// The pieces that every view is made of.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { BEGAN, moment, exact, span, visible } from "./format.js";
import { link } from "./router.js";

/** A page: its title, what leads to it, and what can be done on it. */
export function Page({ title, crumbs = [], note, acts, children }) {
  useEffect(() => {
    document.title = `${title} · Stockade`;
  }, [title]);
  return html`<div class="page">
    <header class="page-head">
      <div>
        ${crumbs.length > 0 &&
        html`<nav class="crumbs" aria-label="Breadcrumb">
          ${crumbs.map(([text, parts], place) => html`${place > 0 && html`<span aria-hidden="true">/</span>`}<a href=${link(parts)}>${text}</a>`)}
        </nav>`}
        <h1>${visible(title)}</h1>
        ${note && html`<p class="note">${note}</p>`}
      </div>
      ${acts && html`<div class="acts">${acts}</div>`}
    </header>
    ${children}
  </div>`;
}

/** A box with a title. One without is no landmark of its own. */
export function Card({ title, side, children, flush = false }) {
  const looks = `card${flush ? " flush" : ""}`;
  if (!title) return html`<div class=${looks}>${children}</div>`;
  return html`<section class=${looks} aria-label=${title}>
    <div class="card-head"><h2>${title}</h2>${side && html`<div class="side">${side}</div>`}</div>
    ${children}
  </section>`;
}

/** Columns of a table whose names are cut off sooner. */
const MANY = 6;

/** A cell that is cut off says the whole of it when it is pointed at. */
function tellWhole(event) {
  const cell = event.target.closest(".cell");
  if (cell && cell.scrollWidth > cell.clientWidth) cell.title = cell.textContent.trim();
}

/** Rows under heads. A head is text, or { text, end: true } for numbers, { text, wrap: true } for sentences. `rows`: { key, cells, href, mark }. */
export function Table({ heads, rows, empty, label }) {
  if (rows.length === 0 && empty) return empty;
  const names = heads.map((head) => head.text ?? head);
  const looks = heads.map((head) => (head.end ? "end" : head.wrap ? "wrap" : ""));
  return html`<div class=${`table-box${heads.length > MANY ? " many" : ""}`} tabindex="0" role="group" aria-label=${label} onMouseOver=${tellWhole}>
    <table>
      <thead>
        <tr>
          ${heads.map((head) => html`<th scope="col" class=${head.end ? "end" : ""}>${(head.text ?? head) || html`<span class="unseen">What can be done</span>`}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          (row) => html`<tr key=${row.key} class=${row.mark || ""}>
            ${row.cells.map((cell, place) => html`<td class=${looks[place]} data-head=${names[place]}><div class="cell">${cell}</div></td>`)}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** What there is to say where nothing is: a sentence, and what to do next. */
export function Empty({ title, children, act }) {
  return html`<div class="empty">
    <p class="empty-title">${title}</p>
    ${children && html`<p>${children}</p>`}
    ${act}
  </div>`;
}

export const Loading = () => html`<div class="empty" aria-busy="true"><p class="soft">Reading…</p></div>`;

/** A refusal where its answer would be. */
export function Refused({ error }) {
  if (error.status === 403) {
    return html`<${Empty} title="This is not yours to see">${error.message}<//>`;
  }
  return html`<div class="banner bad" role="alert">
    <b>${error.code || "Error"}</b> ${error.message}
    ${error.problem?.type && html` <a href=${error.problem.type}>What to do next</a>`}
  </div>`;
}

/** `children` of the answer, or what stands in its place. */
export function Answer({ of, children }) {
  if (of.data) return children(of.data);
  return of.error ? html`<${Refused} error=${of.error} />` : html`<${Loading} />`;
}

export const Chip = ({ kind = "", children, title }) =>
  html`<span class=${`chip ${kind}`} title=${title}>${children}</span>`;

export const Dot = ({ kind, label }) => label
    ? html`<span class=${`dot ${kind}`} role="img" aria-label=${label}></span>`
    : html`<span class=${`dot ${kind}`} aria-hidden="true"></span>`;

export const When = ({ at }) =>
  at ? html`<time datetime=${exact(at)} title=${exact(at)}>${moment(at)}</time>` : html`<span class="soft">–</span>`;

/** The holder of a slot, or that there is none. */
export function Holder({ partition }) {
  const { holder, slot_mode: mode } = partition;
  if (holder) {
    const title = `${holder.mode}, ${BEGAN[holder.operation] || holder.operation}`;
    return html`<span class="holder" title=${title}>
      <b>${visible(holder.producer_name)}</b>${holder.client_id && html`<span class="soft"> of ${visible(holder.client_id)}</span>`}
    </span>`;
  }
  if (mode === "Shared") return html`<${Chip}>shared<//>`;
  return html`<span class="soft">${partition.topic_epoch === null ? "unknown" : "free"}</span>`;
}

export function Tabs({ tabs, now, parts, label }) {
  return html`<nav class="tabs" aria-label=${label}>
    ${tabs.map(
      ([id, text]) =>
        html`<a href=${link(parts, { tab: id === tabs[0][0] ? "" : id })} aria-current=${id === now ? "page" : undefined}>
          ${text}
        </a>`,
    )}
  </nav>`;
}

export function Search({ value, onInput, label, placeholder }) {
  return html`<input
    class="search"
    type="search"
    value=${value}
    aria-label=${label}
    placeholder=${placeholder || label}
    onInput=${(event) => onInput(event.target.value)}
  />`;
}

/** A share as a bar, from 0 to 1. */
export const Bar = ({ share, label, kind = "" }) => {
  const percent = Math.round(100 * Math.min(1, Math.max(0, share)));
  return html`<span class="bar-box" role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${percent}>
    <span class=${`bar-fill ${kind}`} style=${{ width: `${percent}%` }}></span>
  </span>`;
};

/** Steps through a list that the node serves in pages. */
export function Pager({ first, size, total, onMove }) {
  if (total <= size && first === 0) return null;
  const last = Math.min(total, first + size);
  return html`<div class="pager">
    <span class="soft">${first + 1}–${last} of ${total.toLocaleString("en")}</span>
    <button class="small" disabled=${first === 0} onClick=${() => onMove(Math.max(0, first - size))}>Previous</button>
    <button class="small" disabled=${last >= total} onClick=${() => onMove(first + size)}>Next</button>
  </div>`;
}

/** A label over a field. */
export function Field({ label, hint, children }) {
  return html`<label class="field"><span>${label}</span>${children}${hint && html`<small>${hint}</small>`}</label>`;
}

/** A dialog in front of the page. Closed before it goes, it gives the focus back to what had it. */
export function useModal() {
  const box = useRef(null);
  useLayoutEffect(() => {
    const dialog = box.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return box;
}

/**
 * A question in front of the page. `onDo` does what it is about; its refusal stays in the dialog, which closes when it
 * is done, unless it answers false. `confirm`: what a person has to type first.
 */
export function Dialog({ title, children, act, kind = "", confirm, isReady = true, onDo, onClose, wide = false }) {
  const box = useModal();
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const run = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      if ((await onDo()) !== false) {
        onClose();
        return;
      }
      setTyped("");
      setBusy(false);
    } catch (refusal) {
      setError(refusal);
      setBusy(false);
    }
  };
  return html`<dialog ref=${box} class=${wide ? "wide" : ""} aria-label=${title} onClose=${onClose} onCancel=${onClose}>
    <form onSubmit=${run}>
      <h2>${visible(title)}</h2>
      ${children}
      ${confirm &&
      html`<${Field} label=${html`Type <b>${confirm}</b> to go on`}>
        <input autocomplete="off" value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      <//>`}
      ${error && html`<${Refused} error=${error} />`}
      <div class="dialog-acts">
        ${busy && html`<span class="soft late" role="status">Sent: closing this takes nothing back.</span>`}
        <button type="button" onClick=${onClose}>${busy ? "Close" : "Cancel"}</button>
        <button class=${`primary ${kind}`} disabled=${busy || !isReady || (confirm && typed !== confirm)}>${busy ? "…" : act}</button>
      </div>
    </form>
  </dialog>`;
}

/** What an act will hit, before it is done. */
export const Blast = ({ children }) => html`<section class="blast" aria-label="What this hits"><h3>What this hits</h3>${children}</section>`;

export const Facts = ({ facts }) => html`<dl class="facts">
  ${facts.filter(Boolean).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value ?? "–"}</dd></div>`)}
</dl>`;

export const Left = ({ ms }) => html`<span class=${ms < 3000 ? "warn-text" : ""}>${span(ms)}</span>`;
