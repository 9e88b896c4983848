// Find anything by how its name begins: the nodes look, ten of each kind at most.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get } from "./api.js";
import { visible } from "./format.js";
import { go } from "./router.js";
import { useModal } from "./ui.js";

const MOST = 10;
const WAIT_MS = 150;

/** What a caller may not see is left out. */
async function found(text, signal) {
  const kinds = [
    ["Topic", "/v1/topics", (all) => all.topics.map((each) => [each.name, ["topics", each.name]])],
    ["Session", "/v1/sessions", (all) => all.sessions.map((each) => [each.client_id, ["sessions"], { find: each.client_id }])],
    ["Group", "/v1/groups", (all) => all.groups.map((each) => [each.group, ["groups", each.group]])],
    ["Producer", "/v1/producers", (all) => all.producers.map((each) => [each.name, ["producers", each.name]])],
  ];
  const answers = await Promise.allSettled(
    kinds.map(([kind, path]) => get(path, kind === "Topic" ? { find: text, n: MOST } : { prefix: text, n: MOST }, { signal })),
  );
  return answers.flatMap((answer, place) =>
    answer.status === "fulfilled" ? kinds[place][2](answer.value).slice(0, MOST).map((hit) => [kinds[place][0], ...hit]) : [],
  );
}

export function Finder({ onClose }) {
  const box = useModal();
  const [text, setText] = useState("");
  const [hits, setHits] = useState([]);
  const [at, setAt] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(
      () => found(text.trim(), stop.signal).then((all) => { setHits(all); setAt(0); }, () => {}),
      WAIT_MS,
    );
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text]);
  const open = (hit) => {
    onClose();
    go(hit[2], hit[3]);
  };
  const pressed = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && hits.length) {
      event.preventDefault();
      setAt((at + step + hits.length) % hits.length);
    } else if (event.key === "Enter" && hits[at]) {
      event.preventDefault();
      open(hits[at]);
    }
  };
  return html`<dialog ref=${box} class="finder" aria-label="Find" onClose=${onClose}>
    <input type="search" role="combobox" aria-expanded=${hits.length > 0} aria-controls="hits" aria-label="Name"
      aria-activedescendant=${hits.length ? `hit-${at}` : undefined} autofocus placeholder="Name of a topic, session, group or producer"
      value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${pressed} />
    <ul id="hits" role="listbox" aria-label="Found">
      ${hits.map(
        (hit, place) => html`<li id=${`hit-${place}`} role="option" aria-selected=${place === at} onMouseEnter=${() => setAt(place)} onClick=${() => open(hit)}>
          <span class="soft">${hit[0]}</span><b>${visible(hit[1])}</b>
        </li>`,
      )}
    </ul>
    ${hits.length === 0 && html`<p class="soft">Nothing begins so.</p>`}
  </dialog>`;
}
