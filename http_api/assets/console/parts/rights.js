// What the caller may do. What it may not do is not offered; the node decides again in any case.

const ALL = "all";

let caller = { principal: null, rights: [], open: true };

export function setCaller(told) {
  caller = told;
}

/** Whether no topic is hidden from the caller: any right on a topic lets it see the topic. */
export const seesAll = () => caller.open || caller.rights.some((right) => right === ALL || right.endsWith(" topic:*"));

/** Whether the caller has the right: may("admin", "topic", "orders"); without a name, on any name of that kind. */
export function may(verb, kind, name) {
  if (caller.open) return true;
  return caller.rights.some((right) => {
    if (right === ALL) return true;
    const [ofVerb, what] = right.split(" ");
    const [ofKind, ...rest] = what.split(":");
    if (ofVerb !== verb || ofKind !== kind) return false;
    if (kind === "cluster" || name === undefined) return true;
    const ofName = rest.join(":");
    return ofName.endsWith("*") ? name.startsWith(ofName.slice(0, -1)) : name === ofName;
  });
}
