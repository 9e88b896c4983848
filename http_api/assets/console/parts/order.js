// The question before a dangerous act: its plan with a digest. What a person has seen is done, or nothing.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { plural, visible } from "./format.js";
import { Blast, Dialog, Refused } from "./ui.js";

const CHANGED = "PLAN_CHANGED";

/** What `look` planned for these keys, from the moment of the question: it does not change under a reader's eyes. */
function usePlan(look, keys) {
  const [state, setState] = useState({ plan: null, error: null, done: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    setState({ plan: null, error: null, done: null });
    look({ signal: stop.signal }, (done, of) => setState((before) => ({ ...before, done: [done, of] }))).then(
      (plan) => setState({ plan, error: null, done: null }),
      (error) => error.name === "AbortError" || setState({ plan: null, error, done: null }),
    );
    return () => stop.abort();
  }, [...keys, turn]);
  return { ...state, again: () => setTurn(turn + 1) };
}

/** A text as one word of a shell. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/**
 * `look(options, tell)` makes the plan, anew for other `keys`; a null `look` has no plan yet. `onDo(plan)` carries it out.
 * `reason`, of an order that has one, is shown in its command.
 * When the cluster answers that the state has changed, nothing was done: the new plan is shown, and asked for again.
 */
export function Order({ title, act, confirm, look, keys = [], reason = "", onDo, onClose, children }) {
  const { plan, error, done, again } = usePlan(look, keys);
  const [isChanged, setChanged] = useState(false);
  const shown = useRef("");
  const run = async () => {
    shown.current = plan.digest;
    setChanged(false);
    try {
      await onDo(plan);
    } catch (refusal) {
      if (refusal.code !== CHANGED) throw refusal;
      setChanged(true);
      again();
      return false;
    }
  };
  return html`<${Dialog} title=${title} act=${act} kind="danger" confirm=${confirm} isReady=${Boolean(plan)} onDo=${run} onClose=${onClose}>
    ${isChanged && html`<div class="banner bad" role="alert">The state has changed since you looked (plan ${shown.current}). Nothing was done. What it would hit now:</div>`}
    <${Blast}>
      ${error && html`<${Refused} error=${error} />`}
      ${!plan && !error && html`<p class="soft">${done && done[1] > 1 ? `Looking at ${plural(done[1], "partition")}: ${done[0]}…` : "Looking…"}</p>`}
      ${plan && html`<ul>${plan.lines.map((line) => html`<li>${visible(line)}</li>`)}</ul>`}
    <//>
    ${children}
    ${plan && html`<p class="digest"><span>Plan <code>${plan.digest}</code>: exactly this is done, or nothing.${plan.command ? " The same in a shell:" : ""}</span>${plan.command && html`<code>${plan.command}${reason.trim() && ` --reason ${quoted(reason.trim())}`}</code>`}</p>`}
  <//>`;
}
