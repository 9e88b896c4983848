// Every view has an address that can be shared: #/topics/orders/0?tab=log&offset=5.

import { useEffect, useState } from "../vendor/preact.js";

/** A piece of the address; as it is, if it was cut, or typed by a person, and is no code. */
function decoded(piece) {
  try {
    return decodeURIComponent(piece);
  } catch {
    return piece;
  }
}

/** The address as { parts: ["topics", "orders"], query: { tab: "log" } }. */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return {
    parts: path.split("/").filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

/** The address of a view. */
export function link(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const tail = given.length ? `?${new URLSearchParams(given)}` : "";
  return `#/${parts.map(encodeURIComponent).join("/")}${tail}`;
}

export function go(parts, query) {
  location.hash = link(parts, query);
}

/** Change the query of the address; what a person types is no step back of its own. */
export function change(query) {
  const now = here();
  history.replaceState(null, "", link(now.parts, { ...now.query, ...query }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useAddress() {
  const [address, setAddress] = useState(here);
  useEffect(() => {
    const moved = () => setAddress(here());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return address;
}
